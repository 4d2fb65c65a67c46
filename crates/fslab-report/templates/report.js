"use strict";
// The page is whole without this script: it sorts, chooses and folds what is there.
const root = document.documentElement;
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

document.querySelector(".controls").hidden = false;
document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());

// A choice becomes an attribute of the page, which its style looks at.
for (const name of ["theme", "axes"]) {
  const choice = document.getElementById(name);
  const choose = () => {
    if (choice.value) root.dataset[name] = choice.value;
    else delete root.dataset[name];
  };
  choice.addEventListener("change", choose);
  choose();
}

// One baseline is shown at a time.
const baseline = document.getElementById("baseline");
const chooseBaseline = () => {
  for (const part of all("[data-baseline]")) {
    part.hidden = part.dataset.baseline !== (baseline ? baseline.value : "0");
  }
};
baseline?.addEventListener("change", chooseBaseline);
chooseBaseline();

// Finds workloads by a part of their name.
document.getElementById("find")?.addEventListener("input", (event) => {
  const text = event.target.value.trim().toLowerCase();
  for (const part of all(".workload")) {
    part.hidden = !part.dataset.name.toLowerCase().includes(text);
  }
});

// A link to a folded workload unfolds it.
const unfold = () => {
  const part = location.hash && document.getElementById(location.hash.slice(1));
  if (part && part.tagName === "DETAILS") part.open = true;
};
addEventListener("hashchange", unfold);
unfold();

// Sorts a table by the column whose heading is pressed.
for (const button of all("th button")) {
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
  for (const details of all("details")) details.open = true;
});
