// Filters the rows of the table that follows it.
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
  const table = place.nextElementSibling.querySelector("table"), input = html("input"), told = html("span");
  Object.assign(input, { type: "search", spellcheck: false, placeholder: JSON.parse(place.querySelector("script").textContent) });
  input.setAttribute("aria-label", "Filter");
  told.setAttribute("aria-live", "polite");
  place.querySelector(".place").replaceChildren(input, told);
  const titles = [...table.querySelectorAll("th")].map((one) => one.textContent);
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

queueMicrotask(() => document.querySelectorAll("figure.filter").forEach(filterable));
