// Curves of many runs: over what, of which loss, coloured by what; those that the table leaves, without those
// that are switched off in it.
const STOPS = 9;
const HUES = ["blue", "red", "green", "purple", "orange", "sky"];

// Value of a column to [group, colour]: numbers along a ramp by their rank, names by their frequency.
function coloring(column) {
  const known = column.values.filter((one) => one !== null), count = new Map();
  for (const one of known) count.set(one, (count.get(one) || 0) + 1);
  const told = new Map([[null, ["not told", "grey"]]]);
  if (known.every((one) => typeof one === "number") && count.size) {
    const values = [...count.keys()].sort((a, b) => a - b), show = FORMATS[column.format] || FORMATS.rate;
    const bin = (i) => (values.length <= STOPS ? i : Math.floor((i * STOPS) / values.length));
    const bins = Math.min(STOPS, values.length);
    values.forEach((one, i) => {
      const inside = values.filter((_, other) => bin(other) === bin(i));
      const name = inside.length > 1 ? `${show(inside[0])} to ${show(inside[inside.length - 1])}` : show(one);
      told.set(one, [name, `ramp${bins === 1 ? 0 : Math.round((bin(i) * (STOPS - 1)) / (bins - 1))}`]);
    });
    return told;
  }
  const names = [...count.keys()].sort((a, b) => count.get(b) - count.get(a) || (String(a) < String(b) ? -1 : 1));
  names.forEach((one, i) => told.set(one, i < HUES.length ? [String(one), HUES[i]] : ["others", "grey"]));
  return told;
}

class Curves {
  constructor(figure, data) {
    Object.assign(this, { figure, data, off: new Set(), left: null, swatches: new Map() });
    this.drawn = new Set(data.runs.map((one) => one.row));
    this.table = document.querySelector("table.sortable");
    const controls = html("div", "controls"), place = html("div");
    this.of = this.choice(controls, "loss", data.ys);
    this.over = this.choice(controls, "over", data.xs);
    this.by = this.choice(controls, "coloured by", data.by);
    for (const axis of ["x", "y"]) controls.append(this.logarithm(axis));
    figure.querySelector(".place").replaceChildren(controls, place);
    const x = { log: data.x_log }, y = { log: data.y_log };
    this.plot = new Plot(place, { label: data.label, height: 420, x, y, series: [], ...this.axes(x, y) });
    this.table?.addEventListener("filtered", () => this.follow());
    this.follow();
  }

  choice(controls, label, choices) {
    const select = html("select"), place = html("label", "", label);
    choices.forEach((one) => select.append(html("option", "", one.name)));
    select.addEventListener("change", () => { this.plot.view = null; this.draw(); });
    place.append(select);
    if (choices.length > 1) controls.append(place);
    return select;
  }

  logarithm(axis) {
    const button = html("button", "key", `log ${axis}`);
    button.type = "button";
    button.setAttribute("aria-pressed", String(this.data[`${axis}_log`]));
    button.addEventListener("click", () => {
      this.plot.data[axis].log = !this.plot.data[axis].log;
      button.setAttribute("aria-pressed", String(this.plot.data[axis].log));
      this.plot.view = null;
      this.draw();
    });
    return button;
  }

  axes(x, y) {
    const [over, of] = [this.data.xs[Math.max(0, this.over.selectedIndex)], this.data.ys[Math.max(0, this.of.selectedIndex)]];
    Object.assign(x, { name: over.name, format: over.format });
    Object.assign(y, { name: of.name, format: "loss" });
    return { x, y, legend_title: (this.data.by[Math.max(0, this.by.selectedIndex)] || { name: "" }).name };
  }

  // Other curves than before, of a study that goes on.
  replace(runs, by) {
    this.drawn = new Set(runs.map((one) => one.row));
    const was = this.by.selectedIndex < 0 ? null : this.data.by[this.by.selectedIndex]?.name;
    Object.assign(this.data, { runs, by });
    this.by.replaceChildren(...by.map((one) => html("option", "", one.name)));
    this.by.selectedIndex = Math.max(0, by.findIndex((one) => one.name === was));
    this.follow();
  }

  // The rows that the table's filter leaves.
  follow() {
    const rows = this.table ? [...this.table.tBodies[0].rows] : [];
    this.left = rows.length ? new Set(rows.filter((row) => !row.hidden).map((row) => +row.dataset.first)) : null;
    for (const row of rows) this.addSwatch(row);
    this.draw();
  }

  addSwatch(row) {
    const run = +row.dataset.first;
    if (this.swatches.get(run)?.isConnected || !this.drawn.has(run)) return;
    const button = html("button", "dot");
    button.type = "button";
    button.title = "its curve, on or off";
    button.setAttribute("aria-label", `curve of ${row.cells[0].textContent}`);
    button.setAttribute("aria-pressed", String(!this.off.has(run)));
    button.addEventListener("click", () => {
      if (!this.off.delete(run)) this.off.add(run);
      button.setAttribute("aria-pressed", String(!this.off.has(run)));
      this.draw();
    });
    row.cells[0].prepend(button);
    this.swatches.set(run, button);
  }

  draw() {
    Object.assign(this.plot.data, this.axes(this.plot.data.x, this.plot.data.y));
    const over = this.data.xs[Math.max(0, this.over.selectedIndex)], of = this.data.ys[Math.max(0, this.of.selectedIndex)];
    const by = this.data.by[Math.max(0, this.by.selectedIndex)];
    const told = by ? coloring(by) : new Map();
    const series = [];
    this.data.runs.forEach((run, i) => {
      const curve = run.curves[of.key];
      const [group, hue] = by ? told.get(by.values[i]) : ["", "blue"];
      this.swatches.get(run.row)?.style.setProperty("--own", color(hue));
      const xs = curve && (over.of ? curve[over.of]?.map((n) => n * run.scale[over.key]) : curve[over.key]);
      if (!xs || this.off.has(run.row) || this.left && !this.left.has(run.row)) return;
      if (over.of && !run.scale[over.key]) return;
      series.push({ name: run.name, note: run.note, group, color: hue, kind: "line", x: xs, y: curve.y, rank: by ? by.values[i] : 0 });
    });
    series.sort((a, b) => (a.rank < b.rank ? -1 : a.rank > b.rank ? 1 : 0));
    this.plot.show(series);
  }
}

const curves = [];
function startCurves() {
  document.querySelectorAll("figure.curves").forEach((figure) => {
    curves.push(new Curves(figure, JSON.parse(figure.querySelector("script").textContent)));
  });
}
