// Draws the charts of a page with uPlot: areas on each other, lines, limits, marks, and stages as bands.
const shade = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const INCREMENTS = {
  bytes: [0, 1, 2, 3, 4].flatMap((power) => [1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => n * 1024 ** power)),
  seconds: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800,
    3600, 7200, 21600, 43200, 86400, 172800, 432000, 864000, 2592000],
  percent: [1, 2, 5, 10, 20, 25, 50], watts: [1, 2, 5, 10, 20, 50, 100, 200, 500],
};
const STROKES = { rising: [[-1, 9, 9, -1]], falling: [[-1, -1, 9, 9]], crossed: [[-1, 9, 9, -1], [-1, -1, 9, 9]], level: [[0, 4, 8, 4]] };
const groups = new Map();

// One tile of an area's fill, or a piece of a line, as a canvas: patterns and dashes differ in grey too.
function swatch(one) {
  const canvas = html("canvas"), c = canvas.getContext("2d"), isLine = one.kind === "line", width = isLine ? 24 : 8;
  Object.assign(canvas, { width, height: 8 });
  c.strokeStyle = isLine || one.pattern === "level" ? shade(one.color) : shade("paper");
  c.fillStyle = shade(one.color);
  if (isLine) { c.lineWidth = 2; c.setLineDash(one.dash); } else if (one.pattern !== "level") c.fillRect(0, 0, width, 8);
  for (const [a, b, x, y] of isLine ? [[0, 4, width, 4]] : STROKES[one.pattern] || []) {
    c.beginPath(); c.moveTo(a, b); c.lineTo(x, y); c.stroke();
  }
  c.fillStyle = shade("paper");
  if (one.pattern === "dots") c.fillRect(3, 3, 2, 2);
  return canvas;
}

class Chart {
  constructor(figure) {
    Object.assign(this, JSON.parse(figure.querySelector("script").textContent));
    figure.chart = this;
    this.range = [0, this.ends];
    this.series = [...this.series.filter((one) => one.kind === "stack").reverse(), ...this.series.filter((one) => one.kind === "line")];
    this.strip = html("div", "bands");
    this.said = html("div", "unseen");
    this.said.setAttribute("aria-live", "polite");
    this.host = html("div");
    figure.querySelector(".place").replaceChildren(this.strip, this.host, this.said);
    groups.set(this.group || this, [...(groups.get(this.group) || []), this]);
    this.tags = this.bands.map((band) => this.tag(band));
    this.strip.style.height = `${17 * (1 + Math.max(-1, ...this.bands.map((band) => band.row)))}px`;
    this.build();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.build());
    new ResizeObserver(() => this.plot.setSize(this.size())).observe(this.host);
  }

  tag(band) {
    const made = html("button", `band${band.end === null ? " open" : ""}`, band.label);
    Object.assign(made, { title: `${band.label}: ${band.note}`, type: "button" });
    made.style.cssText = `top: ${17 * band.row}px; background: var(--${band.color})`;
    made.addEventListener("click", () => this.zoom(band.begin, band.end ?? this.range[1]));
    this.strip.append(made);
    return made;
  }

  size() { return { width: Math.max(280, this.host.clientWidth), height: this.height + 50 + this.above() }; }

  // Room above the plot for the names of the marks, which would hide the curves.
  above() { return 15 * this.marks.length; }

  zoom(from, to) {
    const [low, high] = this.range, pad = Math.max((high - low) * 1e-5, 1e-3 * (to - from));
    for (const one of groups.get(this.group || this)) one.plot.setScale("x", { min: Math.max(low, from - pad), max: Math.min(high, to + pad) });
  }

  // Values as uPlot draws them: each area up to the sum of those below it that are shown.
  drawn() {
    const sums = this.x.map(() => 0);
    const rows = this.series.map((one) => one.y);
    for (let i = rows.length - 1; i >= 0; i--) {
      if (this.series[i].kind !== "stack" || !this.series[i].shown) continue;
      rows[i] = rows[i].map((y, at) => { sums[at] += y || 0; return y === null ? null : sums[at]; });
    }
    return [this.x, ...rows];
  }

  build() {
    const view = this.plot && { ...this.plot.scales.x };
    this.plot?.destroy();
    const tell = (axis) => FORMATS[axis.unit];
    const axis = (of, side) => ({
      stroke: shade("soft"), grid: { stroke: shade("hair"), width: 1 }, ticks: { stroke: shade("faint") }, label: of.label, labelSize: 20,
      values: (_, found) => found.map(tell(of)), incrs: INCREMENTS[of.unit], font: "12px sans-serif", labelFont: "12px sans-serif", ...side,
    });
    const inStages = (x) => this.bands.filter((band) => band.begin <= x && (band.end === null || x <= band.end)).map((band) => band.label);
    this.plot = new uPlot({
      ...this.size(), padding: [12 + this.above(), 12, 0, 0], axes: [axis(this.x_axis, { space: 90, size: 28 }), axis(this.y_axis, { size: 66, space: 45 })],
      scales: {
        x: { time: false, range: (_, min, max) => (min <= this.x[0] && max >= this.x[this.x.length - 1] ? this.range : [min, max]) },
        y: { range: (_, min, max) => this.reach(max) },
      },
      series: [{ label: "at", value: (_, x) => (x == null ? "" : [tell(this.x_axis)(x), ...inStages(x)].join(" › ")) },
        ...this.series.map((one) => ({
          label: one.name, show: one.shown, spanGaps: one.spans_gaps, dash: one.dash, width: one.kind === "line" ? 1.8 : 0,
          stroke: shade(one.color), fill: one.kind === "stack" ? (u) => u.ctx.createPattern(swatch(one), "repeat") : undefined, points: { show: false },
          value: (_, y, i, at) => (at == null || one.y[at] == null ? "" : tell(this.y_axis)(one.y[at])),
        }))],
      legend: { markers: { width: 0, fill: (_, i) => (i ? `url(${swatch(this.series[i - 1]).toDataURL()})` : "none") } },
      cursor: {
        y: false, sync: this.group ? { key: this.group, scales: ["x", null] } : undefined,
        dataIdx: (_, i, at) => (i && this.series[i - 1].spans_gaps && this.series[i - 1].y.slice(at).some((y) => y !== null) ? this.known(this.series[i - 1].y, at) : at),
      },
      hooks: {
        draw: [(u) => this.annotate(u)],
        setSeries: [(u, i, options) => { if (i && options.show !== undefined) { this.series[i - 1].shown = options.show; this.refresh(); } }],
      },
    }, this.drawn(), this.host);
    if (view) this.plot.setScale("x", view);
    const root = this.plot.root;
    for (const [name, value] of Object.entries({ role: "img", tabindex: 0, "aria-label": this.label })) root.setAttribute(name, value);
    root.addEventListener("keydown", (event) => this.key(event));
    root.querySelectorAll(".u-series").forEach((row, i) => {
      row.title = i ? this.series[i - 1].note : "";
      if (!i) return;
      row.firstChild.tabIndex = 0;
      row.firstChild.addEventListener("keydown", (event) => { if (event.key === "Enter") row.firstChild.click(); });
    });
  }

  refresh() {
    const { min, max } = this.plot.scales.x;
    this.plot.setData(this.drawn(), false);
    this.plot.setScale("x", { min, max });
  }

  // The nearest place with a known value.
  known(ys, at) {
    for (let by = 0; by < ys.length; by++) for (const i of [at - by, at + by]) if (ys[i] != null) return i;
    return at;
  }

  reach(max) {
    return [0, 1.05 * Math.max(max || 1, this.y_axis.end, ...this.limits.filter((one) => one.in_view).map((one) => one.value))];
  }

  // Names and lines over the plot, and the bands above it.
  annotate(u) {
    const k = devicePixelRatio, c = u.ctx, { left, top, width, height } = u.bbox;
    const say = (text, x, y, align, tone) => {
      Object.assign(c, { textAlign: align, lineWidth: 3 * k, strokeStyle: shade("paper"), fillStyle: shade(tone), font: `600 ${12 * k}px sans-serif` });
      c.setLineDash([]); c.strokeText(text, x, y); c.fillText(text, x, y);
    };
    const line = (from, to, tone, dash) => {
      Object.assign(c, { lineWidth: 1.6 * k, strokeStyle: shade(tone) });
      c.setLineDash(dash.map((n) => n * k)); c.beginPath(); c.moveTo(...from); c.lineTo(...to); c.stroke();
    };
    const px = (y) => u.valToPos(y, "y", true);
    c.save();
    if (this.x.length) this.nameSeries(u, say, px);
    for (const limit of this.limits) {
      const y = px(limit.value);
      if (y < top) { say(`↑ ${limit.label}`, left + 6 * k, top + 12 * k, "left", "bad"); continue; }
      line([left, y], [left + width, y], "red", [8, 3]);
      say(limit.label, left + 6 * k, y + 14 * k, "left", "bad");
    }
    this.marks.forEach((mark, row) => {
      const x = u.valToPos(mark.at, "x", true), isRight = x > left + width / 2, tone = mark.is_bad ? "bad" : "soft";
      if (x < left - 1 || x > left + width + 1) return;
      line([x, top], [x, top + height], tone, [2, 2]);
      say(mark.label, x + (isRight ? -6 : 6) * k, top - (5 + 15 * row) * k, isRight ? "right" : "left", tone);
    });
    c.restore();
    Object.assign(this.strip.style, { marginLeft: `${left / k}px`, width: `${width / k}px` });
    this.bands.forEach((band, i) => {
      const from = Math.max(0, u.valToPos(band.begin, "x")), to = Math.min(width / k, u.valToPos(band.end ?? this.range[1], "x"));
      this.tags[i].hidden = to < 0 || from > width / k;
      Object.assign(this.tags[i].style, { left: `${from}px`, width: `${Math.max(1, to - from)}px` });
    });
  }

  // An area is named where it is thickest; of lines without areas each is named at its end.
  nameSeries(u, say, px) {
    const k = devicePixelRatio, [first, last] = u.series[0].idxs, taken = [];
    this.series.forEach((one, i) => {
      if (!one.shown) return;
      if (one.kind === "stack") {
        const most = Math.max(...one.y.slice(first, last + 1)), thickest = [];
        for (let j = first; j <= last; j++) if (one.y[j] > 0.9 * most) thickest.push(j);
        const at = thickest[thickest.length >> 1] ?? first;
        const upper = px(u.data[i + 1][at]), thick = px(0) - px(one.y[at] || 0);
        const x = Math.min(u.bbox.left + u.bbox.width - 40 * k, Math.max(u.bbox.left + 40 * k, u.valToPos(this.x[at], "x", true)));
        if (thick > 17 * k) say(one.name, x, upper + thick / 2 + 4 * k, "center", "ink");
      } else if (this.series[0].kind === "line" && this.series.length > 1) {
        const at = this.known(one.y, last);
        const highest = u.bbox.top + 12 * k;
        let y = Math.max(highest, px(one.y[at] ?? 0) - 4 * k), by = -5 * k;
        while (taken.some((other) => Math.abs(other - y) < 14 * k)) {
          if (y + by < highest) by = 5 * k;
          y += by;
        }
        taken.push(y);
        say(one.name, u.valToPos(this.x[at], "x", true) - 6 * k, y, "right", "ink");
      }
    });
  }

  key(event) {
    const u = this.plot, { min, max } = u.scales.x, [first, last] = u.series[0].idxs || [0, 0], middle = (min + max) / 2;
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (move) {
      const at = Math.max(first, Math.min(last, (u.cursor.idx ?? (move > 0 ? first - 1 : last + 1)) + move * (event.shiftKey ? 10 : 1)));
      u.setCursor({ left: u.valToPos(this.x[at], "x"), top: 10 });
      this.said.textContent = [...u.root.querySelectorAll(".u-series")].map((row) => row.textContent).join(", ");
    } else if (event.key === "+" || event.key === "=") this.zoom((min + middle) / 2, (max + middle) / 2);
    else if (event.key === "-") this.zoom(min - (max - min) / 2, max + (max - min) / 2);
    else if (event.key === "0" || event.key === "Escape") this.zoom(...this.range);
    else return;
    event.preventDefault();
  }
}

queueMicrotask(() => document.querySelectorAll("figure.chart").forEach((figure) => new Chart(figure)));
