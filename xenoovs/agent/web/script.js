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
        now.replaceChildren(...fresh.body.childNodes);
        silent.hidden = true;
      } catch {
        silent.hidden = false;
      }
    }
    setTimeout(refresh, every);
  }

  // The browser's own hint comes late and cannot be styled: the text moves from <title> to ours.
  function told(cell) {
    const title = cell.querySelector("title");
    if (title) {
      cell.dataset.tip = title.textContent;
      title.remove();
    }
    return cell.dataset.tip;
  }

  document.addEventListener("pointermove", (event) => {
    const cell = event.target.closest ? event.target.closest(".strip rect") : null;
    tip.hidden = !cell;
    if (!cell) return;
    tip.textContent = told(cell);
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, room))}px`;
    tip.style.top = `${event.clientY + 18}px`;
  });

  setTimeout(refresh, every);
})();
