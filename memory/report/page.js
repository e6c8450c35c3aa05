// The page around the charts: tables are sorted, code is copied, the theme is changed.
function sortable(table) {
  table.querySelectorAll("th button").forEach((button) => button.addEventListener("click", () => {
    const head = button.parentElement, column = [...head.parentElement.children].indexOf(head);
    const body = table.tBodies[0], rows = [...body.rows];
    rows.forEach((row, i) => { row.dataset.first = row.dataset.first || i; });
    const now = head.getAttribute("aria-sort");
    const next = now === "descending" ? "ascending" : now === "ascending" ? "none" : "descending";
    table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    if (next !== "none") head.setAttribute("aria-sort", next);
    const value = (row) => row.cells[column].dataset.value;
    const order = (a, b) => {
      const [one, other] = [value(a), value(b)];
      if (next === "none" || one === other) return a.dataset.first - b.dataset.first;
      if (one === undefined || other === undefined) return one === undefined ? 1 : -1;
      const found = isNaN(one) || isNaN(other) ? one.localeCompare(other) : one - other;
      return next === "ascending" ? found : -found;
    };
    body.replaceChildren(...rows.sort(order));
  }));
}

function copying(button) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try { await navigator.clipboard.writeText(code.textContent); } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

document.querySelectorAll("figure.chart").forEach((figure, number) => new Chart(figure, number));
document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("button.copy").forEach(copying);
const theme = document.querySelector("button.theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
});
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
document.documentElement.dataset.drawn = "yes";
