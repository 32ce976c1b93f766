// A click on a header sorts its table: a column of numbers by what its cells begin with, largest first, others by words.
const number = cell => parseFloat(cell.textContent.trim().replace(/(\d),(?=\d{3})/g, "$1"));
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], headers = table.tHead ? [...table.tHead.rows[0].cells] : [];
  if (body?.rows.length > 1) headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const rows = [...body.rows], cells = new Map(rows.map(row => [row, row.cells[column]]));
      const numeric = header.classList.contains("number");
      const known = rows.filter(row => !isNaN(number(cells.get(row))));
      const before = header.ariaSort || (numeric ? "ascending" : "descending");
      const order = before === "ascending" ? "descending" : "ascending", sign = order === "ascending" ? 1 : -1;
      const compare = (a, b) => numeric ? number(cells.get(a)) - number(cells.get(b))
        : cells.get(a).textContent.localeCompare(cells.get(b).textContent, "en", { numeric: true });
      headers.forEach(other => other.removeAttribute("aria-sort"));
      header.ariaSort = order;
      const said = numeric ? known : rows;
      body.append(...said.sort((a, b) => sign * compare(a, b)), ...rows.filter(row => !said.includes(row)));
    });
  });
}
