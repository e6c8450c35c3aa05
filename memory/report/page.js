// The page around the charts: tables are sorted and filtered, code is copied, the theme is changed.
function numbered(rows) { rows.forEach((row, i) => { row.dataset.first = row.dataset.first || i; }); }

function sortable(table) {
  table.querySelectorAll("th button").forEach((button) => button.addEventListener("click", () => {
    const head = button.parentElement, column = [...head.parentElement.children].indexOf(head);
    const body = table.tBodies[0], rows = [...body.rows];
    numbered(rows);
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

// `64d lr<0.01 state!=done -seed3`: rows that have all of these words, or meet all of these conditions.
const CONDITION = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.*)$/;

function condition(word, titles) {
  const match = word.match(CONDITION);
  if (!match) {
    const isNot = word.length > 1 && word[0] === "-", wanted = (isNot ? word.slice(1) : word).toLowerCase();
    return (row) => row.textContent.toLowerCase().includes(wanted) !== isNot;
  }
  const [, name, sign, wanted] = match;
  const column = titles.findIndex((title) => title === name || title.endsWith(`.${name}`));
  if (column < 0) throw new Error(`no column ${name}`);
  const isEqual = (cell) => [cell.dataset.value, cell.textContent, ...cell.textContent.split(",")].some((has) =>
    has === wanted || has && wanted && !isNaN(has) && !isNaN(wanted) && Number(has) === Number(wanted));
  return (row) => {
    const cell = row.cells[column], value = cell.dataset.value;
    if (sign === "=" || sign === "!=") return isEqual(cell) === (sign === "=");
    if (value === undefined || value === "" || isNaN(value) || wanted === "") return false;
    const bound = Number(wanted);
    return { "<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound }[sign];
  };
}

function filterable(place) {
  const table = place.nextElementSibling.querySelector("table"), input = place.querySelector("input");
  const told = place.querySelector("span"), titles = [...table.querySelectorAll("th")].map((one) => one.textContent);
  const filter = () => {
    const rows = [...table.tBodies[0].rows];
    numbered(rows);
    let meets = [];
    try { meets = input.value.split(/\s+/).filter(Boolean).map((word) => condition(word, titles)); } catch (error) {
      told.textContent = error.message;
      return;
    }
    for (const row of rows) row.hidden = !meets.every((one) => one(row));
    const left = rows.filter((row) => !row.hidden).length;
    told.textContent = left === rows.length ? `${rows.length} rows` : `${left} of ${rows.length} rows`;
    table.dispatchEvent(new Event("filtered"));
  };
  input.addEventListener("input", filter);
  table.filter = filter;
  filter();
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
document.querySelectorAll(".filter").forEach(filterable);
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
