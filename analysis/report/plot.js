// Draws the charts whose series have an x of their own: lines, points and bands over two axes, each linear or
// logarithmic. Readers point, zoom and switch groups off, by keys too.
const SVG = "http://www.w3.org/2000/svg";
const TIME_STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 432000, 864000];

const SIZES = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];
const EDGE = { left: 62, right: 16, top: 14, bottom: 44 };
const NEAR_PX = 40;

const node = (name, attributes = {}, text) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
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

function ticks(low, high, kind, most) {
  if (!(high > low)) return [low];
  let step;
  if (kind === "seconds") step = TIME_STEPS.find((s) => (high - low) / s <= most) || (high - low) / most;
  else {
    const unit = kind === "bytes" ? 1024 ** Math.max(0, Math.floor(Math.log(Math.max(high, 1) * 1.0001) / Math.log(1024))) : 1;
    const rough = (high - low) / unit / most, power = 10 ** Math.floor(Math.log10(rough));
    step = unit * power * [1, 2, 5, 10].find((m) => m * power >= rough * 0.999);
  }
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-12) && found.length < 50; at++) found.push(at * step);
  return found;
}

// Values as the terminal tells them: counts in powers of 1000.
FORMATS.count = (n) => {
  const [size, unit] = SIZES.find(([one]) => Math.abs(n) >= one) || [1, ""];
  return `${+(n / size).toPrecision(3)}${unit}`;
};
FORMATS.power = (n) => (Math.abs(n) >= 1e5 || n && Math.abs(n) < 1e-3 ? n.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e") : `${+n.toPrecision(4)}`);
FORMATS.loss = (n) => n.toFixed(4);
FORMATS.rate = (n) => `${+n.toPrecision(4)}`;
FORMATS.none = () => "";
const AXIS_FORMATS = { ...FORMATS, loss: (n) => `${+n.toPrecision(4)}` };

// In the scale of an axis: as they are, or their logarithms to the base 10.
const isLog = (axis) => axis.scale === "log";
const scaled = (axis, n) => (isLog(axis) ? Math.log10(n) : n);
const unscaled = (axis, n) => (isLog(axis) ? 10 ** n : n);

// Where an axis is marked, as values: linear steps, or 1, 2, 5 of each decade where it spans one.
function places(axis, [low, high], most) {
  if (axis.names.length) return axis.names.map((_, i) => i);
  if (axis.unit === "none") return [];
  if (!isLog(axis) || high - low < 0.9) {
    const [from, to] = [unscaled(axis, low), unscaled(axis, high)];
    return ticks(from, to, axis.unit, most);
  }
  const decades = [];
  for (let power = Math.floor(low); power <= high; power++) decades.push(power);
  const within = (n) => Math.log10(n) >= low - 1e-9 && Math.log10(n) <= high + 1e-9;
  for (const steps of [[1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
    const found = decades.flatMap((power) => steps.map((step) => step * 10 ** power)).filter(within);
    if (found.length <= most) return found;
  }
  const every = Math.ceil(decades.length / most);
  return decades.filter((power) => power % every === 0).map((power) => 10 ** power).filter(within);
}

// A legend whose entries switch their groups off and on.
function legendOf(series, title, hidden, redraw) {
  const groups = new Map();
  for (const one of series) if (one.group && !groups.has(one.group)) groups.set(one.group, one);
  const keys = [...groups].map(([group, one]) => {
    const button = html("button", "key"), kind = one.kind === "line" && one.dash?.length ? "dash" : one.kind;
    button.type = "button";
    button.append(html("span", `swatch ${kind}`), html("span", "", group));
    button.firstChild.style.setProperty("--own", color(one.color));
    button.setAttribute("aria-pressed", String(!hidden.has(group)));
    button.addEventListener("click", () => {
      if (!hidden.delete(group)) hidden.add(group);
      button.setAttribute("aria-pressed", String(!hidden.has(group)));
      redraw();
    });
    return button;
  });
  return [...(title ? [html("span", "legendtitle", title)] : []), ...keys];
}

class Plot {
  // host: its place on the page. data: a chart as chart.py writes it.
  constructor(host, data, hidden = new Set()) {
    Object.assign(this, { host, data, hidden, view: null, now: null });
    this.svg = node("svg", { role: "img", tabindex: 0, "aria-label": data.label });
    this.tip = html("div", "tip");
    this.tip.hidden = true;
    this.said = html("div", "unseen");
    this.said.setAttribute("aria-live", "polite");
    this.legend = html("div", "legend");
    this.plot = html("div", "plot");
    this.plot.append(this.svg, this.tip);
    host.replaceChildren(this.legend, this.plot, this.said);
    this.listen();
    this.makeLegend();
    new ResizeObserver(() => { if (this.plot.clientWidth !== this.wide) this.draw(); }).observe(this.plot);
    if (data.series.length && !data.waits) this.draw();
  }

  makeLegend() {
    this.reset = html("button", "reset", "All");
    this.reset.type = "button";
    this.reset.hidden = this.view === null;
    this.reset.addEventListener("click", () => this.zoom(null));
    this.legend.replaceChildren(...legendOf(this.data.series, this.data.legend_title, this.hidden, () => this.draw()), this.reset);
  }

  seen() { return this.data.series.filter((one) => !this.hidden.has(one.group)); }

  axis(name) { return this.data[`${name}_axis`]; }

  // Both axes in their scale: all that is seen, with some room, unless the reader chose a part.
  ranges(series = this.seen()) {
    if (this.view) return this.view;
    const spans = { x: [Infinity, -Infinity], y: [Infinity, -Infinity] };
    const take = (name, n) => {
      const at = scaled(this.axis(name), n), span = spans[name];
      if (n === null || !Number.isFinite(at)) return;
      if (at < span[0]) span[0] = at;
      if (at > span[1]) span[1] = at;
    };
    for (const one of series) {
      one.x.forEach((x, i) => { if (one.kind === "lost" || (one.kind === "area" ? one.low : one.y)[i] !== null) take("x", x); });
      for (const ys of [one.y, one.low, one.high]) if (ys) ys.forEach((y) => take("y", y));
    }
    for (const line of this.data.limits) take("y", line.value);
    for (const mark of this.data.marks) take("x", mark.at);
    for (const [name, span] of Object.entries(spans)) {
      const axis = this.axis(name);
      if (axis.end) take(name, axis.end);
      if (axis.scale === "zero") take(name, 0);
      if (span[0] > span[1]) [span[0], span[1]] = [0, 1];
      const room = (span[1] - span[0]) * (name === "x" ? 0.02 : 0.05) || 0.5 * (isLog(axis) ? 0.3 : Math.abs(span[0]) || 1);
      span[0] -= axis.scale === "zero" && span[0] === 0 ? 0 : room;
      span[1] += axis.names.length ? 0.35 : room;
    }
    return spans;
  }

  zoom(view) {
    this.view = view;
    this.reset.hidden = view === null;
    if (this.zoomed) this.zoomed(view); else this.draw();
  }

  toX(n) { return EDGE.left + ((scaled(this.data.x_axis, n) - this.span.x[0]) / (this.span.x[1] - this.span.x[0])) * this.inner; }
  toY(n) { return this.bottom - ((scaled(this.data.y_axis, n) - this.span.y[0]) / (this.span.y[1] - this.span.y[0])) * (this.bottom - EDGE.top); }

  draw() {
    this.wide = this.plot.clientWidth;
    const width = Math.max(280, this.wide || 720), height = this.data.height;
    this.inner = width - EDGE.left - EDGE.right;
    this.bottom = height - EDGE.bottom;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.span = this.view || this.shared || this.ranges();
    const clip = `within${Plot.made = (Plot.made || 0) + 1}`, defs = node("defs"), clipping = node("clipPath", { id: clip });
    clipping.append(node("rect", { x: EDGE.left, y: EDGE.top - 6, width: this.inner, height: this.bottom - EDGE.top + 6 }));
    defs.append(clipping);
    const inside = node("g", { "clip-path": `url(#${clip})` });
    inside.append(...this.drawLines());
    for (const one of this.seen()) inside.append(...this.drawOne(one));
    inside.append(...this.drawLabels());
    this.over = node("g", { class: "over" });
    this.selection = node("rect", { class: "selection", width: 0, height: 0 });
    this.svg.replaceChildren(defs, this.drawAxes(width, height), inside, this.selection, this.over);
    this.point(null);
  }

  drawAxes(width, height) {
    const group = node("g", { class: "axes" }), { x_axis: x, y_axis: y } = this.data;
    const top = unscaled(y, this.span.y[1]), unit = y.unit === "bytes" ? Math.max(0, Math.floor(Math.log(top) / Math.log(1024))) : 0;
    const show = y.unit === "bytes" ? (n) => `${+(n / 1024 ** unit).toPrecision(3)} ${UNITS[unit]}` : AXIS_FORMATS[y.unit];
    for (const n of places(y, this.span.y, Math.max(2, (this.bottom - EDGE.top) / 42))) {
      const at = this.toY(n);
      group.append(node("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at }));
      group.append(node("text", { x: EDGE.left - 8, y: at + 4, "text-anchor": "end" }, show(n)));
    }
    for (const n of places(x, this.span.x, Math.max(2, this.inner / 70))) {
      const at = this.toX(n);
      group.append(node("line", { class: "tick", x1: at, x2: at, y1: x.names.length ? EDGE.top : this.bottom, y2: this.bottom + 4 }));
      group.append(node("text", { x: at, y: this.bottom + 17, "text-anchor": at > width - 30 ? "end" : "middle" }, x.names.length ? x.names[n] : AXIS_FORMATS[x.unit](n)));
    }
    group.append(node("line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: this.bottom, y2: this.bottom }));
    group.append(node("text", { class: "axisname", x: EDGE.left + this.inner, y: height - 6, "text-anchor": "end" }, x.label));
    group.append(node("text", { class: "axisname", x: EDGE.left + 6, y: EDGE.top + 4 }, y.label));
    return group;
  }

  // Limits across, marks upright, and labels.
  drawLines() {
    const made = [], right = EDGE.left + this.inner;
    for (const line of this.data.limits) {
      const at = this.toY(line.value), own = color(line.color);
      made.push(node("line", { class: "mean", x1: EDGE.left, x2: right, y1: at, y2: at, stroke: own }));
      if (line.label) made.push(node("text", { class: "label", x: right - 4, y: at - 5, "text-anchor": "end" }, line.label));
    }
    this.data.marks.forEach((mark, row) => {
      const at = this.toX(mark.at), own = color(mark.is_bad ? "bad" : "soft"), isRight = at > EDGE.left + this.inner * 0.7;
      if (mark.until !== null) {
        made.push(node("rect", { class: "area", x: at, width: Math.max(1, this.toX(mark.until) - at), y: EDGE.top, height: this.bottom - EDGE.top, fill: own }));
      } else made.push(node("line", { class: "mean", x1: at, x2: at, y1: EDGE.top, y2: this.bottom, stroke: own }));
      made.push(node("text", { class: "label", x: at + (isRight ? -5 : 5), y: this.bottom - 6 - 14 * row, "text-anchor": isRight ? "end" : "start" }, mark.label));
    });
    return made;
  }

  drawLabels() {
    return this.data.labels.map((one) => node("text", { class: "label", x: this.toX(one.x) + 5, y: this.toY(one.y) + 4 }, one.text));
  }

  path(one) {
    let path = "", pen = "M";
    one.x.forEach((x, i) => {
      const [at, up] = one.y[i] === null || isLog(this.data.x_axis) && !(x > 0) || isLog(this.data.y_axis) && !(one.y[i] > 0) ? [] : [this.toX(x), this.toY(one.y[i])];
      if (at === undefined) { pen = "M"; return; }
      path += `${pen}${at.toFixed(1)} ${up.toFixed(1)}`;
      pen = "L";
    });
    return path;
  }

  drawOne(one) {
    const own = color(one.color);
    if (one.kind === "line") {
      const dash = one.dash?.length ? { "stroke-dasharray": one.dash.join(" ") } : {};
      return [node("path", { d: this.path(one), class: "line", stroke: own, ...dash })];
    }
    if (one.kind === "area") {
      const up = one.x.map((x, i) => `${this.toX(x).toFixed(1)} ${this.toY(one.high[i]).toFixed(1)}`);
      const down = one.x.map((x, i) => `${this.toX(x).toFixed(1)} ${this.toY(one.low[i]).toFixed(1)}`).reverse();
      return up.length ? [node("path", { d: `M${up.join("L")}L${down.join("L")}Z`, class: "area", fill: own })] : [];
    }
    if (one.kind === "lost") return one.x.map((x) => node("text", { class: "lost", x: this.toX(x), y: EDGE.top + 20, "text-anchor": "middle" }, "×"));
    return one.x.flatMap((x, i) => {
      if (one.y[i] === null) return [];
      const [at, up] = [this.toX(x), this.toY(one.y[i])];
      const bar = one.low?.length && one.low[i] !== null ? [node("line", { class: "error", x1: at, x2: at, y1: this.toY(one.low[i]), y2: this.toY(one.high[i]), stroke: own })] : [];
      return [...bar, node("circle", { class: one.kind, cx: at, cy: up, r: one.kind === "rings" ? 3 : 4, fill: own, stroke: own })];
    });
  }

  // The nearest place of anything that is seen: [series, index, its distance].
  nearest(px, py) {
    let best = [null, 0, Infinity];
    const x = unscaled(this.data.x_axis, this.span.x[0] + ((px - EDGE.left) / this.inner) * (this.span.x[1] - this.span.x[0]));
    const look = (one, i) => {
      if (i < 0 || i >= one.x.length || one.kind !== "lost" && one.y[i] === null) return;
      const up = one.kind === "lost" ? EDGE.top + 16 : this.toY(one.y[i]);
      const far = Math.hypot(this.toX(one.x[i]) - px, up - py);
      if (far < best[2]) best = [one, i, far];
    };
    for (const one of this.seen()) {
      if (one.kind === "area" || !one.x.length) continue;
      if (one.kind === "line") {
        const i = nearest(one.x, x);
        for (let near = i - 2; near <= i + 2; near++) look(one, near);
      } else one.x.forEach((_, i) => look(one, i));
    }
    return best;
  }

  point(found) {
    this.now = found;
    this.over.replaceChildren();
    this.tip.hidden = found === null;
    if (!found) return;
    const [one, i] = found, isLost = one.kind === "lost";
    const [at, up] = [this.toX(one.x[i]), isLost ? EDGE.top + 16 : this.toY(one.y[i])];
    if (one.kind === "line") {
      const d = this.path(one);
      this.over.append(node("path", { d, class: "halo" }), node("path", { d, class: "lit", stroke: color(one.color) }));
    }
    this.over.append(node("circle", { cx: at, cy: up, r: 4.5, fill: color(one.color), stroke: "var(--paper)" }));
    const row = (name, value) => {
      const made = html("div", "row");
      made.append(html("span", "name", name), html("span", "value", value));
      return made;
    };
    this.tip.replaceChildren(html("div", "when", one.name), row(this.data.x_axis.label, this.data.x_axis.names[one.x[i]] || FORMATS[this.data.x_axis.unit](one.x[i])));
    if (!isLost && this.data.y_axis.unit !== "none") this.tip.append(row(this.data.y_axis.label, FORMATS[this.data.y_axis.unit](one.y[i])));
    if (one.low?.length && one.low[i] !== null) this.tip.append(row("between", `${FORMATS[this.data.y_axis.unit](one.low[i])} and ${FORMATS[this.data.y_axis.unit](one.high[i])}`));
    const note = one.notes?.length ? one.notes[i] : one.note;
    if (note) this.tip.append(html("div", "stage", note));
    const wide = this.tip.offsetWidth, scale = this.plot.clientWidth / (this.inner + EDGE.left + EDGE.right), left = at * scale;
    this.tip.style.left = `${left + 14 + wide > this.plot.clientWidth ? Math.max(0, left - wide - 14) : left + 14}px`;
    this.tip.style.top = `${Math.max(0, Math.min(up * scale + 10, this.plot.clientHeight - this.tip.offsetHeight))}px`;
  }

  listen() {
    const at = (event) => {
      const box = this.svg.getBoundingClientRect(), scale = (this.inner + EDGE.left + EDGE.right) / box.width;
      return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    };
    let from = null;
    this.svg.addEventListener("pointermove", (event) => {
      const [px, py] = at(event);
      if (from) {
        const [x, y] = [Math.min(px, from[0]), Math.min(py, from[1])];
        for (const [name, n] of Object.entries({ x, y, width: Math.abs(px - from[0]), height: Math.abs(py - from[1]) })) this.selection.setAttribute(name, n);
      } else {
        const found = this.nearest(px, py);
        this.point(found[2] <= NEAR_PX ? found : null);
      }
    });
    this.svg.addEventListener("pointerleave", () => { if (!from) this.point(null); });
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      from = at(event);
      this.point(null);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointerup", (event) => {
      if (!from) return;
      const [[ax, ay], [bx, by]] = [from, at(event)];
      from = null;
      this.selection.setAttribute("width", 0);
      if (Math.abs(ax - bx) < 8 && Math.abs(ay - by) < 8) return;
      const { x, y } = this.span;
      const inX = (px) => x[0] + ((Math.max(EDGE.left, Math.min(EDGE.left + this.inner, px)) - EDGE.left) / this.inner) * (x[1] - x[0]);
      const inY = (py) => y[0] + ((this.bottom - Math.max(EDGE.top, Math.min(this.bottom, py))) / (this.bottom - EDGE.top)) * (y[1] - y[0]);
      const up = (a, b) => [Math.min(a, b), Math.max(a, b)];
      this.zoom({ x: Math.abs(ax - bx) < 8 ? x : up(inX(ax), inX(bx)), y: Math.abs(ay - by) < 8 ? y : up(inY(ay), inY(by)) });
    });
    this.svg.addEventListener("dblclick", () => this.zoom(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  // Left and right: along a line; up and down: to the next one; 0 or Esc: all again.
  key(event) {
    const seen = this.seen().filter((one) => one.kind !== "area" && one.x.length);
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (move && seen.length) {
      const was = this.now ? Math.max(0, seen.indexOf(this.now[0])) : 0;
      const one = seen[(was + move[0] + seen.length) % seen.length];
      let i = this.now ? this.now[1] + move[1] * (event.shiftKey ? 10 : 1) : 0;
      i = Math.max(0, Math.min(one.x.length - 1, i));
      while (one.y?.length && one.y[i] === null && i > 0) i--;
      if (one.kind === "lost" || one.y[i] !== null) this.point([one, i, 0]);
    } else if (event.key === "0" || event.key === "Escape") this.zoom(null);
    else return;
    event.preventDefault();
    this.said.textContent = this.now ? [...this.tip.children].map((one) => [...one.childNodes].map((part) => part.textContent).join(" ")).join(", ") : "";
  }
}

function startPlots(root) {
  root.querySelectorAll("figure.plotted").forEach((figure) => {
    figure.plotted = new Plot(figure.querySelector(".place"), JSON.parse(figure.querySelector("script").textContent));
  });
}
