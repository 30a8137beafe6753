"use strict";
// What the pages of an agent and of a fleet share: elements, numbers as text, the refresh, and the tips of blocks.
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = ["svg", "rect", "line", "circle", "pattern", "defs", "title"];

// Every text becomes a text node, and every attribute a value: nothing that the agent reports can be markup.
function h(tag, attributes = {}, ...children) {
  const made = DRAWN.includes(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

function table(headers, rows, cell = "th") {
  const heads = headers.map((text) => h(cell, { scope: "col" }, text));
  return h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows));
}

// A table of columns of `status`: texts with their styles.
function cellTable({ headers, rows }, rowClass = () => null) {
  const content = ([text, style]) => (style === "plain" ? text : pill([text, style]));
  const cell = (each, number) =>
    number === 0 ? h("th", { scope: "row" }, each[0]) : each[0] === "" ? h("td") : h("td", { "data-label": headers[number] }, content(each));
  return table(headers, rows.map((cells) => h("tr", { class: rowClass(cells) }, cells.map(cell))));
}

function tiles(facts, kind = "") {
  const made = facts.map(([name, value, under]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "under" }, under)));
  return h("dl", { class: `facts${kind}` }, made);
}

const pill = ([text, kind]) => h("span", { class: `pill ${kind}` }, text);
const notice = ([text, kind]) => h("p", { class: `notice ${kind}` }, text);
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// Numbers as the commands write them (xenoovs/display.py).
const digits = (value) => (value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3))));

function percent(share) {
  if (share === null) return "-";
  const text = String(Number((share * 100).toFixed(2)));
  if (text === "0" && share > 1e-12) return "<0.01%";
  return text === "100" && share < 1 - 1e-12 ? "99.99%" : `${text}%`;
}

function quantity(value) {
  if (value === null) return "-";
  if (value > 0 && value < 0.095) return "<0.1";
  for (const [factor, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= factor * 0.9995) return digits(value / factor) + prefix;
  }
  return digits(value);
}

function duration(seconds) {
  if (seconds === null) return "-";
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  let left = Math.max(0, Math.round(seconds));
  const first = units.findIndex(([, size]) => left >= size);
  const parts = [];
  for (const [unit, size] of first < 0 ? units.slice(3) : units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left %= size;
    if (count || !parts.length) parts.push(count + unit);
  }
  return parts.join(" ");
}

// Fetches `now` again and again; `render` returns the children of <main>, `server` is what has to answer.
function run(server, render) {
  const every = 2000;
  const now = document.getElementById("now");
  const tip = document.getElementById("tip");
  const silent = document.getElementById("silent");
  silent.textContent = `The ${server} does not answer. The data shown is old.`;

  async function refresh() {
    try {
      const newest = document.hidden ? null : await latest();
      if (newest !== null) draw(render(newest));
    } finally {
      setTimeout(refresh, every);
    }
  }

  async function latest() {
    try {
      const answer = await fetch("now", { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const newest = await answer.json();
      silent.hidden = true;
      return newest;
    } catch {
      silent.hidden = false;
      return null;
    }
  }

  function draw(children) {
    const place = focused();
    now.replaceChildren(...children.filter((child) => child !== null));
    refocus(place);
  }

  function show(cell, x, y) {
    tip.hidden = !cell;
    if (!cell) return;
    tip.textContent = cell.dataset.tip;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(x + 12, room))}px`;
    tip.style.top = `${y + 18}px`;
  }

  document.addEventListener("pointermove", (event) => {
    const cell = event.target.closest ? event.target.closest(".strip rect") : null;
    if (cell || !now.querySelector(".strip:focus .chosen")) show(cell, event.clientX, event.clientY);
  });

  // Keys: Tab goes to a strip, arrows go from block to block. A refresh of the page keeps the position.
  function choose(strip, index) {
    const cells = strip.querySelectorAll("rect");
    const cell = cells[Math.max(0, Math.min(index, cells.length - 1))];
    for (const other of strip.querySelectorAll(".chosen")) other.classList.remove("chosen");
    cell.classList.add("chosen");
    const box = cell.getBoundingClientRect();
    show(cell, box.x, box.y + box.height - 12);
  }

  function chosen(strip) {
    return [...strip.querySelectorAll("rect")].findIndex((cell) => cell.classList.contains("chosen"));
  }

  function focused() {
    const strip = document.activeElement.closest(".strip");
    return strip && { strip: [...now.querySelectorAll(".strip")].indexOf(strip), cell: chosen(strip) };
  }

  function refocus(place) {
    const strip = place && now.querySelectorAll(".strip")[place.strip];
    if (!strip) return;
    strip.focus({ preventScroll: true });
    if (place.cell >= 0) choose(strip, place.cell);
  }

  document.addEventListener("keydown", (event) => {
    const strip = document.activeElement.closest(".strip");
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!strip) return;
    if (event.key === "Escape") show(null);
    if (step === undefined) return;
    event.preventDefault();
    choose(strip, chosen(strip) + step);
  });

  document.addEventListener("focusout", () => show(null));

  refresh();
}
