// The page of a fleet: its generation, its DPUs by state, and the servers of its store.
const key = (state) => state.replaceAll(" ", "-");

function dpus(now) {
  const labels = now.states.map(([state, count]) =>
    h("label", { for: `only-${key(state)}`, class: `pill choose-${key(state)}` }, `${state} ${count}`));
  const state = now.dpus.headers.indexOf("state");
  return h("section", { class: "card fleet" }, h("h2", {}, "DPUs"), h("p", { class: "badges filters" }, labels),
    cellTable(now.dpus, (cells) => `dpu ${key(cells[state][0])}`));
}

function servers(found) {
  const title = h("h2", {}, "Servers of the store", h("small", {}, "of this host, and those that it leads"));
  return h("section", { class: "card fleet" }, title, cellTable(found));
}

// The filter stands before the part that is drawn again and again, so that the choice and the focus stay.
function filters(states) {
  for (const state of document.querySelector(".filter") ? [] : states.map(([name]) => name)) {
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
  const shown = dpus(now);
  choose(shown);
  return [
    h("header", {}, h("h1", {}, "xenoovs fleet", h("span", { class: "bridge" }, now.name)),
      h("p", { class: "badges" }, now.badges.map(pill))),
    ...now.notices.map(notice),
    tiles(now.facts, " of-fleet"),
    shown,
    servers(now.servers),
  ];
});
