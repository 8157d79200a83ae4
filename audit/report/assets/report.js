"use strict";
// Filters, sorts and unfolds the tables of the page; nothing is fetched and nothing is stored.
(() => {
  const FIRST = 25;

  function make(name, text, parent) {
    const made = document.createElement(name);
    made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function equip(place) {
    const table = place.querySelector("table"), body = table.tBodies[0];
    const rows = [...body.rows], texts = rows.map((row) => row.textContent.toLowerCase());
    let all = rows.length <= FIRST + 5, order = rows.map((_, at) => at), wanted = [];
    const tools = document.createElement("div");
    tools.className = "tools";
    const input = make("input", "", tools), told = make("span", "", tools), more = make("button", "", tools);
    input.type = "search";
    input.placeholder = "Filter rows: words, all of them";
    input.setAttribute("aria-label", "Filter: " + table.caption.textContent);
    told.setAttribute("role", "status");
    more.type = "button";
    if (rows.length > 5) place.prepend(tools);

    function show() {
      let found = 0, shown = 0;
      for (const at of order) {
        const fits = wanted.every((word) => texts[at].includes(word));
        const folded = fits && !all && found >= FIRST;
        found += fits;
        shown += fits && !folded;
        rows[at].classList.toggle("out", !fits);
        rows[at].classList.toggle("folded", folded);
      }
      told.textContent = shown < found ? `${shown} of ${found} rows` : `${found} row${found === 1 ? "" : "s"}`;
      more.hidden = all || shown === found;
      more.textContent = `Show all ${found}`;
    }

    function sort(column, sign, isNumber) {
      const key = (at) => {
        const cell = rows[at].cells[column];
        if (!isNumber) return cell.textContent.toLowerCase();
        return cell.dataset.key === undefined || cell.dataset.key === "None" ? -Infinity : Number(cell.dataset.key);
      };
      const keys = rows.map((_, at) => key(at));
      order.sort((a, b) => (keys[a] < keys[b] ? -sign : keys[a] > keys[b] ? sign : a - b));
      body.append(...order.map((at) => rows[at]));
    }

    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const text = head.textContent, isNumber = "number" in head.dataset;
      head.textContent = "";
      const button = make("button", text, head);
      button.type = "button";
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const next = now ? (now === "descending" ? "ascending" : "descending") : isNumber ? "descending" : "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", next);
        sort(column, next === "ascending" ? 1 : -1, isNumber);
        show();
      });
    });
    input.addEventListener("input", () => {
      wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      show();
    });
    more.addEventListener("click", () => { all = true; show(); rows[order[0]].scrollIntoView({ block: "nearest" }); });
    show();
    return input;
  }

  const inputs = [...document.querySelectorAll(".table")].map(equip);
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = make("button", "Light or dark", document.querySelector("nav"));
  theme.type = "button";
  function turn() {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  }
  theme.addEventListener("click", turn);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.tagName === "INPUT";
    if (event.key === "Escape" && typing) {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
      event.target.blur();
    } else if (typing || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === "/") {
      const near = inputs.find((input) => input.isConnected && input.getBoundingClientRect().bottom > 60);
      if (near) { event.preventDefault(); near.focus(); }
    } else if (event.key === "t") {
      turn();
    }
  });
})();
