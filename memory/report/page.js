// The page around the charts: amounts as the terminal shows them, tables that sort, code to copy, the theme.
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
// Powers of 1024, three digits.
function bytes(n) {
  let exponent = 0;
  while (exponent < UNITS.length - 1 && Math.abs(n) >= 999.5 * 1024 ** exponent) exponent++;
  const value = n / 1024 ** exponent;
  const fine = exponent >= 3 ? Math.abs(value) < 99.95 : exponent > 0 && Math.abs(value) < 9.95;
  return `${value.toFixed(fine ? 1 : 0)} ${UNITS[exponent]}`;
}
function duration(s) {
  const sign = s < 0 ? "-" : "", whole = Math.abs(s);
  if (whole < 120) return `${sign}${+whole.toFixed(whole < 1 ? 3 : whole < 10 ? 2 : 1)} s`;
  const seconds = Math.round(whole), pad = (n) => String(n).padStart(2, "0");
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (d) return `${sign}${d}d ${pad(h)}:${pad(m)}`;
  return sign + (h ? `${h}:${pad(m)}:${pad(seconds % 60)}` : `${m}:${pad(seconds % 60)}`);
}
const plain = (n) => Number(n.toPrecision(4)).toLocaleString("en");
const FORMATS = { bytes, seconds: duration, number: plain, percent: (n) => `${Math.round(n)}%`, watts: (n) => `${Math.round(n)} W` };

const html = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};
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

queueMicrotask(() => {
  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("button.copy").forEach(copying);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  document.documentElement.dataset.drawn = "yes";
});
