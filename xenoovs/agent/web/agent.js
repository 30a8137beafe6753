// The page of an agent: a card for each service, its clients as strips, and a row for each backend.
const COLOURS = 21; // Seven colours, each plain, striped and dotted. Further backends use them again.
const GAPS_UP_TO = 128;
const SIGNS = { up: "●", down: "▼", unchecked: "○", drained: "◇", maintenance: "◆" };
const MEANINGS = {
  HW: "hardware forwards",
  UNCONFIRMED: "hardware holds it, no counter proves it",
  PARTIAL: "hardware matches, CPU forwards",
  TC_SW: "kernel, traffic control",
  IDLE_HW: "hardware holds it, CPU forwards",
  SW: "software",
  CONTRADICTED: "counted in hardware, but the CPU got it",
  ABSENT: "no traffic",
};
const length = (share, whole = 1) => `${Number(((share / whole) * 100).toFixed(3))}%`;
const colour = (number) => (number === undefined ? "gone" : `c${number % COLOURS}`);
const verdictClass = (verdict) => `v-${verdict === null ? "none" : verdict.toLowerCase()}`;
const swatch = (name) =>
  h("svg", { class: "swatch", "aria-hidden": "true" }, h("rect", { class: name, width: "100%", height: "100%" }));

function patterns() {
  const made = (kind, name, size, turn, ink) =>
    h("pattern", { id: kind + name, class: `p${name}`, width: size, height: size, patternUnits: "userSpaceOnUse",
      patternTransform: turn }, h("rect", { class: "ground", width: size, height: size }), ink);
  const each = [0, 1, 2, 3, 4, 5, 6, "-hw", "-sw", "-tc"].map((name) => [
    made("s", name, 7, "rotate(45)", h("rect", { class: "ink", width: 2.5, height: 7 })),
    made("d", name, 6, null, h("circle", { class: "ink", cx: 3, cy: 3, r: 1.4 })),
  ]);
  return h("svg", { class: "patterns", "aria-hidden": "true" }, h("defs", {}, each));
}

function facts(at, totals) {
  const sampled = at.sampled_s === null ? "no sample yet" : `of packets, ${totals.sampled} ago`;
  return tiles([
    ["in hardware", totals.in_hw, sampled],
    ["packets", totals.pps, "a second"],
    ["bits", totals.bps, "a second"],
    ["backends up", totals.up, "with a health check"],
    ["flows", String(at.flows), `${counted(at.rounds, "change")} so far`],
    ["last reconcile", duration(at.last_round_s === null ? null : at.now_s - at.last_round_s), "ago"],
  ]);
}

function card(service, shown) {
  const pps = service.backends.reduce((sum, { rate }) => sum + (rate ? rate.pps : 0), 0);
  const traffic = service.backends.map(({ rate }) => (rate && pps ? rate.pps / pps : null));
  const longest = Math.max(...service.backends.map((b) => b.target_share), ...traffic.map(Number)) || 1;
  // A sum over all changes, which may be far above 1.
  const moved = service.clients_moved ? [`clients moved ${quantity(service.clients_moved)} times on average`] : [];
  const headers = ["backend", "state", "weight", "traffic / target", "packets/s", "bits/s", "in hardware", "blocks"];
  const rows = service.backends.map((backend, number) =>
    row(backend, shown.backends[number], number, bar(service, backend, traffic[number], longest)));
  return h("section", { class: "card" },
    h("h2", {}, service.name, h("span", { class: "vips" }, service.vips.join(", "))),
    h("p", { class: "quiet" }, [...shown.facts, ...moved].join(" · ")),
    shown.cells.length ? strips(service, shown.cells) : null,
    table(headers, rows));
}

function strips(service, cells) {
  const order = Object.fromEntries(service.backends.map((backend, number) => [backend.name, number]));
  const strip = (label, nameOf) =>
    h("svg", { class: cells.length <= GAPS_UP_TO ? "strip gaps" : "strip", role: "img", tabindex: 0, "aria-label": label },
      cells.map((cell) => h("rect", { class: nameOf(cell), x: length(cell.start), width: length(cell.size),
        height: "100%", "data-tip": cell.tip })));
  const present = new Set(cells.map((cell) => cell.verdict));
  const legend = Object.entries(MEANINGS).filter(([verdict]) => present.has(verdict)).map(([verdict, meaning]) =>
    h("li", {}, swatch(verdictClass(verdict)), `${verdict} `, h("small", {}, meaning)));
  const unsampled = present.has(null) ? h("li", {}, swatch(verdictClass(null)), "not sampled yet") : null;
  return h("figure", { class: "map" },
    h("span", { class: "of" }, "backend"),
    strip("clients by backend", (cell) => colour(Object.hasOwn(order, cell.backend) ? order[cell.backend] : undefined)),
    h("span", { class: "of" }, "verdict"),
    strip("clients by verdict", (cell) => verdictClass(cell.verdict)),
    h("figcaption", {}, `All clients of ${service.name}, by the bits that choose their backend.`,
      h("ul", {}, legend, unsampled)));
}

function row(backend, shown, number, share) {
  const cell = (label, ...content) => h("td", { class: "n", "data-label": label }, content);
  const worst = Object.keys(MEANINGS);
  const bad = Object.entries(backend.blocks).filter(([verdict, count]) => count && !["HW", "ABSENT"].includes(verdict));
  bad.sort(([one], [other]) => worst.indexOf(other) - worst.indexOf(one));
  const since = backend.since_s === null ? "" : ` ${shown.since}`;
  const ramp = backend.ramp === null ? "" : ` · ${percent(backend.ramp)} done`;
  return h("tr", {},
    h("th", { scope: "row" }, swatch(colour(number)), h("span", { title: `${backend.mac} by ${backend.egress}` }, backend.name)),
    h("td", { class: `state ${backend.state}`, "data-label": "state" },
      h("b", { class: "sign", "aria-hidden": "true" }, SIGNS[backend.state]),
      h("span", {}, `${shown.state}${since}${ramp}`),
      backend.reason ? h("small", {}, shown.probe) : null),
    cell("weight", shown.weight),
    h("td", { "data-label": "share" }, share),
    cell("packets/s", shown.pps),
    cell("bits/s", shown.bps),
    cell("in HW", shown.in_hw),
    cell("blocks", String(backend.flows),
      bad.length ? h("small", { class: "not-in-hw" }, bad.map(([verdict, count]) => `${count} ${verdict}`).join(", ")) : null));
}

// A bar that is filled to the share of the traffic and has a mark at the target.
function bar(service, backend, traffic, longest) {
  const target = backend.target_share;
  const isMoving = service.draining || service.backends.some((each) => each.is_ejected || each.ramp !== null);
  const has = isMoving ? `has ${percent(backend.share)} of the clients` : "";
  const text = `${percent(traffic)} of the traffic, target ${percent(target)}${has && `, ${has}`}`;
  const part = (kind, width) => h("rect", { class: kind, x: 0, y: "25%", width, height: "50%" });
  const at = length(target, longest);
  return h("div", { class: "share" },
    h("svg", { class: "bar", role: "img", "aria-label": text }, h("title", {}, text), part("ground", "100%"),
      traffic ? part("fill", length(traffic, longest)) : null,
      h("line", { class: "mark", x1: at, x2: at, y1: 0, y2: "100%" })),
    h("span", { class: "n" }, percent(traffic), h("small", {}, ` / ${percent(target)}`),
      has ? h("small", { class: "holds" }, has) : null));
}

function remotes(found, hint) {
  if (!found.rows.length) return null;
  return h("section", { class: "card fleet remotes" }, h("h2", {}, "Tunnels", h("small", {}, hint)), cellTable(found));
}

function events(found) {
  if (!found.length) return h("section", { class: "card" }, h("h2", {}, "Events"), h("p", { class: "quiet" }, "None yet."));
  const items = found.map(({ time_s: time, level, text, facts: more }) => {
    const moment = new Date(Math.floor(time) * 1000).toISOString().replace(".000Z", "+00:00");
    return h("li", { class: level }, h("time", { datetime: moment }, moment.slice(11, 19)), h("b", {}, text),
      more ? h("small", {}, more) : null);
  });
  return h("section", { class: "card events" }, h("h2", {}, "Events", h("small", {}, "newest first, times in UTC")),
    h("ol", {}, items));
}

document.body.append(patterns());
run("agent", (now) => {
  const at = now.snapshot;
  document.title = `xenoovs · ${at.bridge}`;
  return [
    h("header", {}, h("h1", {}, "xenoovs", h("span", { class: "bridge" }, at.bridge)),
      h("p", { class: "badges" }, now.badges.map(pill))),
    ...now.notices.map(notice),
    facts(at, now.totals),
    ...at.services.map((service) => card(service, now.services[service.name])),
    now.left ? h("p", { class: "quiet" }, now.left) : null,
    remotes(now.remotes, now.hint),
    events(now.events),
  ];
});
