// A chart: drawn from the JSON beside it; pointed at, zoomed and searched by pointer and keys.
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 62, right: 14, bottom: 30 };
const BAND = 17;
const groups = new Map();

const node = (name, attributes = {}, text) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const html = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};
const color = (name) => `var(--${name})`;

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - xs[low - 1] <= xs[low] - x ? low - 1 : low;
}

class Chart {
  constructor(figure, number) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    Object.assign(this, { figure, data, number, cursor: null });
    this.series = data.series.map((one) => ({ ...one, x: one.x || data.x }));
    this.hidden = new Set(this.series.filter((one) => one.shown === false).map((one) => one.name));
    const xs = this.series.flatMap((one) => (one.x.length ? [one.x[0], one.x[one.x.length - 1]] : []));
    this.whole = [Math.min(...xs, ...(data.x_range || [])), Math.max(...xs, ...(data.x_range || []))];
    if (!(this.whole[1] > this.whole[0])) this.whole[1] = this.whole[0] + 1;
    this.view = [...this.whole];
    this.svg = node("svg", { role: "img", tabindex: 0, "aria-label": data.label });
    this.tip = html("div", "tip");
    this.said = html("div", "unseen");
    this.said.setAttribute("aria-live", "polite");
    this.legend = this.makeLegend();
    this.plot = html("div", "plot");
    this.plot.append(this.svg, this.tip);
    figure.querySelector(".place").replaceChildren(this.legend, this.stageKey(), this.plot, this.said);
    this.listen();
    this.group = data.group || `own${number}`;
    groups.set(this.group, [...(groups.get(this.group) || []), this]);
    new ResizeObserver(() => this.draw()).observe(this.plot);
    this.draw();
  }

  makeLegend() {
    const legend = html("div", this.data.has_legend ? "legend" : "unshown");
    for (const one of this.series) {
      const button = html("button", "key");
      button.type = "button";
      button.append(html("span", `swatch ${one.kind}`), html("span", "", one.name));
      button.firstChild.style.setProperty("--own", color(one.color));
      if (one.note) button.title = one.note;
      button.setAttribute("aria-pressed", String(!this.hidden.has(one.name)));
      button.addEventListener("click", () => {
        for (const chart of groups.get(this.group)) chart.toggle(one.name);
      });
      legend.append(button);
    }
    this.reset = html("button", "reset", "Whole time");
    this.reset.type = "button";
    this.reset.hidden = true;
    this.reset.addEventListener("click", () => this.zoom(this.whole));
    legend.append(this.reset);
    return legend;
  }

  // What the bands' colours mean, since short bands have no room for their names.
  stageKey() {
    const key = html("div", "stages"), seen = new Map();
    for (const band of this.data.bands) if (!seen.has(band.label)) seen.set(band.label, band.color);
    if (!this.data.has_legend) return key;
    for (const [label, tint] of [...seen].slice(0, 12)) {
      const one = html("span"), swatch = html("i", "swatch");
      swatch.style.setProperty("--own", color(tint));
      one.append(swatch, label);
      key.append(one);
    }
    if (seen.size > 12) key.append(html("span", "", `and ${seen.size - 12} more`));
    return key;
  }

  toggle(name) {
    if (!this.series.some((one) => one.name === name)) return;
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.legend.querySelectorAll(".key").forEach((button, i) => {
      button.setAttribute("aria-pressed", String(!this.hidden.has(this.series[i].name)));
    });
    this.draw();
  }

  zoom(range) {
    const charts = groups.get(this.group);
    const low = Math.min(...charts.map((c) => c.whole[0])), high = Math.max(...charts.map((c) => c.whole[1]));
    const least = (high - low) / 1e5;
    let [from, to] = [Math.max(low, range[0]), Math.min(high, range[1])];
    if (to - from < least) [from, to] = [from - least / 2, from + least / 2];
    const isWhole = from <= low && to >= high;
    for (const chart of charts) {
      chart.view = isWhole && !this.data.group ? [...chart.whole] : [from, to];
      chart.reset.hidden = isWhole;
      chart.draw();
    }
  }

  point(x) {
    for (const chart of groups.get(this.group)) {
      chart.cursor = x;
      chart.drawCursor();
    }
  }

  listen() {
    const at = (event) => this.fromX(event.clientX - this.svg.getBoundingClientRect().left);
    let from = null;
    this.svg.addEventListener("pointermove", (event) => {
      this.point(at(event));
      if (from !== null) this.drawSelection(from, at(event));
    });
    this.svg.addEventListener("pointerleave", () => { if (from === null) this.point(null); });
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      from = at(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const [a, b] = [from, at(event)].sort((one, other) => one - other);
      const band = event.target.band || this.pressed;
      from = null;
      this.drawSelection(0, 0);
      if ((b - a) / (this.view[1] - this.view[0]) > 0.01) this.zoom([a, b]);
      else if (band) this.zoom(this.around(band));
    });
    this.svg.addEventListener("dblclick", () => this.zoom(this.whole));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  around(band) {
    const end = band.end === null ? this.whole[1] : band.end, pad = Math.max((end - band.begin) * 0.05, 1e-3);
    return [band.begin - pad, end + pad];
  }

  key(event) {
    const xs = this.xs().filter((x) => x >= this.view[0] && x <= this.view[1]);
    const span = this.view[1] - this.view[0];
    const middle = this.cursor === null ? (this.view[0] + this.view[1]) / 2 : this.cursor;
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move && xs.length) {
      const now = this.cursor === null ? (move > 0 ? -1 : xs.length) : nearest(xs, this.cursor);
      this.point(xs[Math.min(xs.length - 1, Math.max(0, now + move * (event.shiftKey ? 10 : 1)))]);
    } else if (event.key === "+" || event.key === "=") this.zoom([middle - span / 4, middle + span / 4]);
    else if (event.key === "-") this.zoom([middle - span, middle + span]);
    else if (event.key === "0" || event.key === "Escape") this.zoom(this.whole);
    else if (event.key === "Home") this.point(xs[0]);
    else if (event.key === "End") this.point(xs[xs.length - 1]);
    else return;
    event.preventDefault();
    this.said.textContent = this.cursor === null ? "" : this.tip.textContent;
  }

  xs() {
    return this.data.x.length ? this.data.x : (this.series.find((one) => !this.hidden.has(one.name)) || this.series[0]).x;
  }
  toX(x) { return MARGIN.left + ((x - this.view[0]) / (this.view[1] - this.view[0])) * this.inner; }
  fromX(px) { return this.view[0] + ((px - MARGIN.left) / this.inner) * (this.view[1] - this.view[0]); }
  toY(y) { return this.bottom - ((y - this.low) / (this.top - this.low)) * (this.bottom - this.above); }

  // The stacked series from the bottom up, as sums; what is not known is a gap.
  stacked() {
    const sums = new Array(this.data.x.length).fill(0);
    return this.series.filter((one) => (one.kind === "stack" || one.kind === "hatch") && !this.hidden.has(one.name)).map((one) => {
      const below = [...sums];
      one.y.forEach((value, i) => { sums[i] += value || 0; });
      return { one, below, upto: [...sums] };
    });
  }

  range(stacks) {
    const [low, high] = this.view, seen = [];
    const within = (xs, ys) => xs.forEach((x, i) => {
      const near = x >= low && x <= high || i + 1 < xs.length && x < low && xs[i + 1] > low || i > 0 && x > high && xs[i - 1] < high;
      if (near && ys[i] !== null) seen.push(ys[i]);
    });
    for (const { one, upto } of stacks) within(one.x, upto.map((y, i) => (one.y[i] === null ? null : y)));
    for (const one of this.series) if ((one.kind === "line" || one.kind === "dash") && !this.hidden.has(one.name)) within(one.x, one.y);
    let top = 0;
    for (const y of seen) top = Math.max(top, y);
    let bottom = this.data.from_zero === false ? Infinity : 0;
    if (bottom) for (const y of seen) bottom = Math.min(bottom, y);
    for (const level of this.data.levels) if (level.value <= 2.5 * top) top = Math.max(top, level.value);
    if (this.data.y_max) top = Math.max(top, this.data.y_max);
    if (!Number.isFinite(bottom)) bottom = 0;
    if (bottom) bottom -= (top - bottom) * 0.05;
    return [bottom, top > bottom ? top + (top - bottom) * 0.06 : bottom + 1];
  }

  draw() {
    const width = Math.max(280, this.plot.clientWidth || 720), rows = 1 + Math.max(-1, ...this.data.bands.map((band) => band.row));
    const height = this.data.height + rows * BAND;
    this.inner = width - MARGIN.left - MARGIN.right;
    this.above = 14 + rows * BAND;
    this.bottom = height - MARGIN.bottom;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const stacks = this.stacked();
    [this.low, this.top] = this.range(stacks);
    const clip = `clip${this.number}`, hatch = `hatch${this.number}`;
    const defs = node("defs");
    const clipping = node("clipPath", { id: clip });
    clipping.append(node("rect", { x: MARGIN.left, y: 0, width: this.inner, height: this.bottom }));
    const pattern = node("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    pattern.append(node("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatching" }));
    defs.append(clipping, pattern);
    this.svg.replaceChildren(defs, this.drawAxes(width));
    const inside = node("g", { "clip-path": `url(#${clip})` });
    for (const { one, below, upto } of stacks) {
      inside.append(node("path", { d: this.area(one, below, upto), class: one.kind, fill: one.kind === "hatch" ? `url(#${hatch})` : color(one.color) }));
    }
    for (const one of this.series) {
      if ((one.kind !== "line" && one.kind !== "dash") || this.hidden.has(one.name)) continue;
      inside.append(node("path", { d: this.line(one), class: one.kind, stroke: color(one.color) }));
    }
    this.svg.append(inside, this.drawBands(), this.drawLevels(), this.drawMarks());
    this.selection = node("rect", { class: "selection", y: this.above, height: this.bottom - this.above, width: 0, x: 0 });
    this.cross = node("g", { class: "cross" });
    this.svg.append(this.selection, this.cross);
    this.drawCursor();
  }

  drawAxes(width) {
    const group = node("g", { class: "axes" });
    for (const y of ticks(this.low, this.top, this.data.y_format, Math.max(2, (this.bottom - this.above) / 45))) {
      const at = this.toY(y);
      group.append(node("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }));
      group.append(node("text", { x: MARGIN.left - 8, y: at + 4, "text-anchor": "end" }, FORMATS[this.data.y_format](y)));
    }
    for (const x of ticks(...this.view, this.data.x_format, Math.max(2, this.inner / 90))) {
      const at = this.toX(x);
      group.append(node("line", { class: "tick", x1: at, x2: at, y1: this.bottom, y2: this.bottom + 4 }));
      group.append(node("text", { x: at, y: this.bottom + 17, "text-anchor": at > width - 40 ? "end" : "middle" }, FORMATS[this.data.x_format](x)));
    }
    group.append(node("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: this.bottom, y2: this.bottom }));
    return group;
  }

  line(one) {
    let path = "", pen = "M";
    one.y.forEach((y, i) => {
      if (y === null) { pen = "M"; return; }
      path += `${pen}${this.toX(one.x[i]).toFixed(1)} ${this.toY(y).toFixed(1)}`;
      pen = "L";
    });
    return path;
  }

  area(one, below, upto) {
    let path = "", run = [];
    const close = () => {
      if (run.length === 1) run.push(run[0]);
      if (run.length) {
        const px = (i, shift) => (this.toX(one.x[i]) + shift).toFixed(1);
        const up = run.map((i, n) => `${px(i, run[0] === run[1] && n ? 1.5 : 0)} ${this.toY(upto[i]).toFixed(1)}`);
        const down = run.map((i, n) => `${px(i, run[0] === run[1] && n ? 1.5 : 0)} ${this.toY(below[i]).toFixed(1)}`).reverse();
        path += `M${up.join("L")}L${down.join("L")}Z`;
      }
      run = [];
    };
    one.y.forEach((y, i) => (y === null ? close() : run.push(i)));
    close();
    return path;
  }

  drawBands() {
    const group = node("g", { class: "bands" }), ends = new Map();
    for (const band of this.data.bands) {
      const [begin, end] = [this.toX(band.begin), this.toX(band.end === null ? this.whole[1] : band.end)];
      const from = Math.max(MARGIN.left, begin), to = Math.min(MARGIN.left + this.inner, end);
      if (to < from || end < MARGIN.left || begin > MARGIN.left + this.inner) continue;
      const key = `${band.row} ${band.color}`;
      if (ends.has(key) && Math.max(to, from + 1) - ends.get(key) < 0.4) continue;
      ends.set(key, Math.max(to, from + 1));
      const rect = node("rect", { class: `band${band.end === null ? " open" : ""}`, x: from, y: 4 + band.row * BAND, width: Math.max(1, to - from), height: BAND - 3, fill: color(band.color) });
      rect.band = band;
      rect.addEventListener("pointerdown", () => { this.pressed = band; setTimeout(() => { this.pressed = null; }, 600); });
      const title = node("title", {}, `${band.label}${band.note ? `: ${band.note}` : ""}`);
      rect.append(title);
      group.append(rect);
      if (band.row === 0 && to - from > 24) group.append(node("line", { class: "edge", x1: from, x2: from, y1: this.above, y2: this.bottom }));
      if (to - from > 7 * band.label.length + 6) group.append(node("text", { class: "inband", x: (from + to) / 2, y: 4 + band.row * BAND + 11, "text-anchor": "middle" }, band.label));
    }
    return group;
  }

  drawLevels() {
    const group = node("g", { class: "levels" });
    for (const level of this.data.levels) {
      const y = this.toY(level.value);
      if (y < this.above) {
        group.append(node("text", { class: "level", x: MARGIN.left + 6, y: this.above + 10 }, `↑ ${level.label}`));
        continue;
      }
      group.append(node("line", { class: "level", x1: MARGIN.left, x2: MARGIN.left + this.inner, y1: y, y2: y }));
      group.append(node("text", { class: "level", x: MARGIN.left + 6, y: y - 5 }, level.label));
    }
    return group;
  }

  drawMarks() {
    const group = node("g", { class: "marks" });
    const taken = this.data.levels.some((level) => this.toY(level.value) < this.above) ? 1 : 0; // its name is there
    for (const mark of this.data.marks) {
      const x = this.toX(mark.at);
      if (x < MARGIN.left - 1 || x > MARGIN.left + this.inner + 1) continue;
      const right = x > MARGIN.left + this.inner / 2;
      group.append(node("line", { class: mark.kind, x1: x, x2: x, y1: this.above, y2: this.bottom }));
      const word = node("text", { class: mark.kind, x: x + (right ? -6 : 6), y: this.above + 13 + 14 * (taken + (mark.row || 0)), "text-anchor": right ? "end" : "start" }, mark.label);
      group.append(word);
    }
    return group;
  }

  drawSelection(a, b) {
    const [from, to] = [this.toX(Math.min(a, b)), this.toX(Math.max(a, b))];
    this.selection.setAttribute("x", from);
    this.selection.setAttribute("width", Math.max(0, to - from));
  }

  drawCursor() {
    this.cross.replaceChildren();
    this.tip.hidden = this.cursor === null;
    if (this.cursor === null) return;
    const main = this.xs();
    if (!main.length) return;
    const at = main[nearest(main, this.cursor)], x = this.toX(at);
    if (x < MARGIN.left - 1 || x > MARGIN.left + this.inner + 1) { this.tip.hidden = true; return; }
    this.cross.append(node("line", { x1: x, x2: x, y1: this.above, y2: this.bottom }));
    this.tip.replaceChildren(html("div", "when", FORMATS[this.data.x_format](at)));
    const here = this.data.bands.filter((band) => band.begin <= at && (band.end === null || at <= band.end));
    if (here.length) this.tip.append(html("div", "stage", here.map((band) => band.label).slice(0, 4).join(" › ")));
    for (const one of [...this.series].reverse()) {
      if (this.hidden.has(one.name) || !one.x.length) continue;
      const value = one.y[nearest(one.x, at)];
      if (value === null || value === undefined) continue;
      const row = html("div", "row");
      const swatch = html("span", `swatch ${one.kind}`);
      swatch.style.setProperty("--own", color(one.color));
      row.append(swatch, html("span", "name", one.name), html("span", "value", FORMATS[this.data.y_format](value)));
      this.tip.append(row);
      if (one.kind === "line") this.cross.append(node("circle", { cx: this.toX(one.x[nearest(one.x, at)]), cy: this.toY(value), r: 3, fill: color(one.color) }));
    }
    const box = this.plot.getBoundingClientRect(), wide = this.tip.offsetWidth;
    const scale = box.width / (MARGIN.left + this.inner + MARGIN.right);
    this.tip.style.left = `${x * scale + 14 + wide > box.width ? Math.max(0, x * scale - wide - 14) : x * scale + 14}px`;
    this.tip.style.top = `${this.above}px`;
  }
}
