"use strict";
// Sorting: ascending, descending, then as it was; empty cells stay last.
for (const button of document.querySelectorAll("thead th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const column = head.cellIndex, rows = [...body.rows];
    rows.forEach((row, place) => { row.dataset.place ??= place; });
    const next = { none: "ascending", ascending: "descending", descending: "none" };
    const order = next[head.getAttribute("aria-sort")];
    for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", order);
    const key = (row) => {
      const cell = row.cells[column], given = cell.dataset.v;
      if (given === undefined) return cell.classList.contains("missing") ? "" : cell.textContent.trim();
      return given !== "" && Number.isFinite(Number(given)) ? Number(given) : given;
    };
    const sign = order === "descending" ? -1 : 1;
    rows.sort((a, b) => {
      const was = a.dataset.place - b.dataset.place;
      if (order === "none") return was;
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "") || was;
      const numbers = typeof x === "number" && typeof y === "number";
      return sign * (numbers ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true })) || was;
    });
    body.append(...rows);
  });
}
// A number shows the runs behind it.
const box = document.getElementById("runs-box"), told = document.getElementById("chosen");
const runs = box ? [...box.querySelectorAll("tbody tr")] : [];
const choose = (ids, words) => {
  for (const row of runs) {
    const chosen = ids.has(row.id.slice(2));
    row.hidden = ids.size > 0 && !chosen;
  }
  told.hidden = ids.size === 0;
  told.textContent = words;
  if (ids.size === 0) return;
  const all = document.createElement("button");
  all.type = "button";
  all.textContent = "show all runs";
  all.addEventListener("click", () => choose(new Set(), ""));
  told.append(" ", all);
};
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-ids]");
  if (!link || !box) return;
  const ids = new Set(link.dataset.ids.split(" "));
  const row = link.closest("tr"), cell = link.closest("td, th");
  const names = [...row.querySelectorAll("th[scope=row]")].map((name) => name.textContent);
  const heading = link.closest("table").tHead.rows[0].cells[cell.cellIndex].textContent;
  box.open = true;
  choose(ids, `${ids.size} run${ids.size > 1 ? "s" : ""} behind ${link.textContent} (${[...names, heading].join(", ")}).`);
});
