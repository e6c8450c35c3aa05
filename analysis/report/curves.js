// Curves of many runs: the reader chooses x, the loss, the colours and the panels. Rows that the table's filter
// hides and runs that are switched off have no curve.
const NO_PANELS = { name: "one", groups: [""], of: [] };

class Curves {
  constructor(figure, data, kept = {}) {
    Object.assign(this, { figure, data, off: kept.off || new Set(), hidden: kept.hidden || new Set(), left: null, swatches: new Map(), plots: [] });
    this.table = document.querySelector("table.sortable");
    const controls = html("div", "controls");
    this.legend = html("div", "legend");
    this.place = html("div");
    this.choices = {};
    const panels = [NO_PANELS, ...data.panels];
    this.choice(controls, "loss", "ys", data.ys, kept);
    this.choice(controls, "over", "xs", data.xs, kept);
    this.choice(controls, "coloured by", "by", data.by, kept);
    this.choice(controls, "panels", "panels", panels, kept, data.has_panels ? 1 : 0);
    this.logs = kept.logs || { x: data.x_log, y: data.y_log };
    for (const axis of ["x", "y"]) controls.append(this.logarithm(axis));
    figure.querySelector(".place").replaceChildren(controls, this.legend, this.place);
    this.table?.addEventListener("filtered", () => this.follow());
    this.follow();
  }

  // The reader's choices, for a figure with newer curves.
  kept() {
    const names = Object.fromEntries(Object.entries(this.choices).map(([key, one]) => [key, one.select.value]));
    return { off: this.off, hidden: this.hidden, logs: this.logs, names };
  }

  choice(controls, label, key, options, kept, first = 0) {
    const select = html("select"), place = html("label", "", label);
    options.forEach((one) => select.append(html("option", "", one.name)));
    const before = options.findIndex((one) => one.name === kept.names?.[key]);
    select.selectedIndex = before >= 0 ? before : first;
    select.addEventListener("change", () => { this.hidden.clear(); this.draw(); });
    place.append(select);
    if (options.length > 1) controls.append(place);
    this.choices[key] = { select, options };
  }

  chosen(key) { return this.choices[key].options[Math.max(0, this.choices[key].select.selectedIndex)]; }

  logarithm(axis) {
    const button = html("button", "key", `log ${axis}`);
    button.type = "button";
    button.setAttribute("aria-pressed", String(this.logs[axis]));
    button.addEventListener("click", () => {
      this.logs[axis] = !this.logs[axis];
      button.setAttribute("aria-pressed", String(this.logs[axis]));
      this.draw();
    });
    return button;
  }

  // The rows that the table's filter leaves.
  follow() {
    const rows = this.table ? [...this.table.tBodies[0].rows] : [];
    this.left = rows.length ? new Set(rows.filter((row) => !row.hidden).map((row) => +row.dataset.first)) : null;
    for (const row of rows) this.addSwatch(row);
    this.draw();
  }

  addSwatch(row) {
    const run = this.data.runs.find((one) => one.row === +row.dataset.first);
    if (!run || this.swatches.get(run.row)?.isConnected) return;
    const button = html("button", "dot");
    button.type = "button";
    button.title = "its curve, on or off";
    button.setAttribute("aria-label", `curve of ${run.name}`);
    button.setAttribute("aria-pressed", String(!this.off.has(run.name)));
    button.addEventListener("click", () => {
      if (!this.off.delete(run.name)) this.off.add(run.name);
      button.setAttribute("aria-pressed", String(!this.off.has(run.name)));
      this.draw();
    });
    row.cells[0].querySelector(".dot")?.remove();
    row.cells[0].prepend(button);
    this.swatches.set(run.row, button);
  }

  // The series of each panel.
  series() {
    const [over, of, by, panels] = ["xs", "ys", "by", "panels"].map((key) => this.chosen(key));
    const found = new Map(panels.groups.map((group) => [group, []]));
    this.data.runs.forEach((run, i) => {
      const curve = run.curves[of.key], rank = by ? by.of[i] : 0;
      const [group, hue, dash] = by ? by.groups[rank] : ["", "blue", []];
      this.swatches.get(run.row)?.style.setProperty("--own", color(hue));
      const xs = curve && (over.of ? curve[over.of]?.map((n) => n * run.scale[over.key]) : curve[over.key]);
      if (!xs || this.off.has(run.name) || this.left && !this.left.has(run.row)) return;
      if (over.of && !run.scale[over.key]) return;
      const panel = found.get(panels.groups[panels.of[i] ?? 0]);
      panel.push({ name: run.name, note: run.note, group, color: hue, dash, kind: "line", x: xs, y: curve.y, rank });
    });
    return [...found].filter(([, series]) => series.length || found.size === 1)
      .map(([group, series]) => [group, series.sort((a, b) => a.rank - b.rank)]);
  }

  draw() {
    const panels = this.series(), [over, of, by] = ["xs", "ys", "by"].map((key) => this.chosen(key));
    const axis = (one, unit, isLog) => ({ label: one.name, unit, scale: isLog ? "log" : "fit", end: 0, top: null, names: [] });
    const isGrid = panels.length > 1;
    this.plots = panels.map(([group, series]) => {
      const data = {
        label: `${group} ${of.name}`.trim(), series, limits: [], marks: [], labels: [], height: isGrid ? 240 : 420,
        x_axis: axis(over, over.format, this.logs.x), y_axis: axis(of, "loss", this.logs.y), legend_title: "", waits: true,
      };
      const plot = new Plot(html("div"), data, this.hidden);
      plot.legend.replaceChildren(...(group ? [html("span", "panelname", group)] : []), plot.reset);
      plot.zoomed = (view) => this.zoom(view);
      return plot;
    });
    this.place.className = isGrid ? "grid3" : "";
    this.place.replaceChildren(...this.plots.map((one) => one.host));
    const ordered = panels.flatMap(([, series]) => series).sort((a, b) => a.rank - b.rank);
    this.legend.replaceChildren(...legendOf(ordered, by?.name, this.hidden, () => this.redraw()));
    this.redraw();
  }

  // All panels have the same axes, so that they compare.
  redraw() {
    const shared = this.plots[0].ranges(this.plots.flatMap((one) => one.seen()));
    for (const one of this.plots) { one.shared = shared; one.draw(); }
  }

  zoom(view) {
    for (const one of this.plots) { one.view = view; one.reset.hidden = view === null; one.draw(); }
  }
}

function startCurves(root, kept = {}) {
  root.querySelectorAll("figure.curves").forEach((figure) => {
    figure.curves = new Curves(figure, JSON.parse(figure.querySelector("script").textContent), kept);
  });
}
