"use strict";
(() => {
  const every = 2000;
  const now = document.getElementById("now");
  const tip = document.getElementById("tip");
  const silent = document.getElementById("silent");
  const parser = new DOMParser();

  async function refresh() {
    if (!document.hidden) {
      try {
        const answer = await fetch("now", { cache: "no-store" });
        if (!answer.ok) throw new Error(String(answer.status));
        const fresh = parser.parseFromString(await answer.text(), "text/html");
        const place = focused();
        now.replaceChildren(...fresh.body.childNodes);
        refocus(place);
        silent.hidden = true;
      } catch {
        silent.hidden = false;
      }
    }
    setTimeout(refresh, every);
  }

  // The browser's own tooltip comes late and cannot be styled: its text moves from <title> to #tip.
  function tipOf(cell) {
    const title = cell.querySelector("title");
    if (title) {
      cell.dataset.tip = title.textContent;
      title.remove();
    }
    return cell.dataset.tip;
  }

  function show(cell, x, y) {
    tip.hidden = !cell;
    if (!cell) return;
    tip.textContent = tipOf(cell);
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

  setTimeout(refresh, every);
})();
