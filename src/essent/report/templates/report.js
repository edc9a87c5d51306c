"use strict";
(() => {
  // Theme: the system's or the other one; ?theme=dark and ?theme=light select it too.
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const asked = new URLSearchParams(location.search).get("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
  if (asked === "dark" || asked === "light") root.dataset.theme = asked;
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  label();

  // Tables: a click on a heading sorts by its column, a second click reverses the order; empty cells stay last.
  const order = new Intl.Collator("en", { numeric: true });
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent.trim();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : order.compare(a, b));
  const sort = (table, column, direction) => {
    const sign = direction === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [keyOf(row, column), row]);
    const empty = (key) => key === null || key === "";
    rows.sort(([a], [b]) => (empty(a) || empty(b) ? Number(empty(a)) - Number(empty(b)) : sign * compare(a, b)));
    body.append(...rows.map(([, row]) => row));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const control = heading.querySelector("button");
      control.addEventListener("click", () => {
        const now = heading.getAttribute("aria-sort");
        const other = now === "ascending" ? "descending" : "ascending";
        const direction = now === "none" ? control.dataset.first : other;
        for (const one of headings) one.setAttribute("aria-sort", one === heading ? direction : "none");
        sort(table, column, direction);
      });
    });
  }
})();
