// The page of a fleet: its generation, its DPUs by state, and the servers of its store.
const tags = (cells, headers) =>
  cells.map((content, number) => (content === "" ? h("td") : h("td", { "data-label": headers[number + 1] }, content)));
const key = (state) => state.replaceAll(" ", "-");

function dpus(now) {
  const choices = [["all", now.dpus.length], ...now.states];
  const labels = choices.map(([state, count]) =>
    h("label", { for: `only-${key(state)}`, class: `pill choose-${key(state)}` }, `${state} ${count}`));
  const headers = ["DPU", ...(now.has_groups ? ["groups"] : []), "state", "generation", "in hardware", "reported",
    "clock", "version", "note"];
  const rows = now.dpus.map((dpu) => {
    const clock = dpu.is_clock_good || !dpu.has_reported ? dpu.clock : pill([dpu.clock, "warn"]);
    const cells = [...(now.has_groups ? [dpu.groups.join(", ") || "-"] : []), pill([dpu.state, { applied: "good", behind: "warn" }[dpu.state] || "bad"]),
      String(dpu.applied || "-"), percent(dpu.hw_share), dpu.seen_s === null ? "-" : `${duration(dpu.seen_s)} ago`,
      clock, dpu.version || "-", dpu.note];
    return h("tr", { class: `dpu ${key(dpu.state)}` }, h("th", { scope: "row" }, dpu.name), tags(cells, headers));
  });
  return h("section", { class: "card fleet" }, h("h2", {}, "DPUs"), h("p", { class: "badges filters" }, labels),
    table(headers, rows));
}

function servers(found) {
  const bytes = (number) => (number === null ? "-" : `${quantity(number)}B`);
  const headers = ["database", "server", "role", "term", "log index", "lag", "size / free"];
  const text = (number) => String(number ?? "-");
  const rows = found.map((each) => {
    const room = each.size_bytes === undefined ? "-" : `${bytes(each.size_bytes)} / ${bytes(each.free_bytes)}`;
    const cells = [each.server, pill(each.role), text(each.term), text(each.index), text(each.lag), room];
    return h("tr", {}, h("th", { scope: "row" }, each.database), tags(cells, headers));
  });
  const title = h("h2", {}, "Servers of the store", h("small", {}, "of this host, and those that it leads"));
  return h("section", { class: "card fleet" }, title, table(headers, rows));
}

function facts(now) {
  const count = (state) => now.states.find(([name]) => name === state)[1];
  const parts = (number, of) => `${number} of ${of}`;
  return tiles([
    ["generation", String(now.generation ?? "-"), "of all blocks"],
    ["config", String(now.config || "-"), "entry of the history"],
    ["services", String(now.services ?? "-"), "in the store"],
    ["DPUs", parts(count("applied"), now.dpus.length), "have the newest generation"],
    ["health", parts(now.targets.up, now.targets.all), "probed targets are up"],
    ["drift", String(now.drift), "services differ on bridges"],
    ["clocks", parts(now.dpus.filter((dpu) => dpu.is_clock_good).length, now.dpus.length),
      `are right within ${now.clock_error_ms} ms`],
    ["databases", parts(now.databases.served, now.databases.all), "served by this host"],
  ], " of-fleet");
}

// The filter stands before the part that is drawn again and again, so that the choice and the focus stay.
function filters(states) {
  for (const state of document.querySelector(".filter") ? [] : ["all", ...states.map(([name]) => name)]) {
    const input = h("input", { type: "radio", name: "filter", id: `only-${key(state)}`, class: "filter",
      "aria-label": `DPUs: ${state}` });
    input.checked = state === "all";
    document.getElementById("now").before(input);
  }
}

function choose(root) {
  for (const input of document.querySelectorAll(".filter")) {
    const label = root.querySelector(`label[for="${input.id}"]`);
    label.classList.toggle("chosen", input.checked);
    label.classList.toggle("focused", input.matches(":focus-visible"));
  }
  const only = document.querySelector(".filter:checked").id.slice("only-".length);
  for (const row of root.querySelectorAll(".dpu")) row.hidden = only !== "all" && !row.classList.contains(only);
}

for (const kind of ["change", "focusin", "focusout"]) document.addEventListener(kind, () => choose(document));
run("controller", (now) => {
  document.title = `xenoovs · ${now.name || "fleet"}`;
  filters(now.states);
  const overrides = now.overrides.map(({ of, weight, author, for_s: since }) =>
    notice([`${of} ${weight ? `has the weight ${weight}` : "is drained"}, by ${author}, for ${duration(since)}`, ""]));
  const shown = dpus(now);
  choose(shown);
  return [
    h("header", {}, h("h1", {}, "xenoovs fleet", h("span", { class: "bridge" }, now.name)),
      h("p", { class: "badges" }, now.badges.map(pill))),
    ...now.notices.map(notice),
    ...overrides,
    facts(now),
    shown,
    servers(now.servers),
  ];
});
