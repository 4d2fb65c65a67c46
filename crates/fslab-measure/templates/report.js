// Sorts a table by the column whose heading is pressed. Everything else on the page is static.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
    const column = heading.cellIndex;
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      const numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
      return (numbers ? x - y : x.localeCompare(y)) * (up ? 1 : -1);
    };
    body.append(...[...body.rows].sort(order));
  });
}
// What is printed must be seen.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
