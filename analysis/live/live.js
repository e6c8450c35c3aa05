// Keeps the page of a study up: asks for what changed, and says when nobody answers.
class Live {
  constructor(figure) {
    Object.assign(this, JSON.parse(figure.querySelector("script").textContent));
    this.table = document.querySelector("table.sortable");
    this.line = html("p", "note", "");
    this.line.setAttribute("role", "status");
    figure.replaceChildren(this.line);
    this.heard = new Date();
    this.next();
  }

  next() { setTimeout(() => this.ask(), this.every_s * 1000); }

  async ask() {
    try {
      const answer = await fetch(`state?since=${this.version}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`${answer.status}`);
      this.take(await answer.json());
      this.heard = new Date();
    } catch (error) {
      this.say(`No answer since ${this.heard.toLocaleTimeString()}: does python -m analysis live still run?`, "bad");
    }
    this.next();
  }

  say(words, tone) {
    this.line.textContent = words;
    this.line.className = tone;
  }

  take(told) {
    const titles = [...this.table.querySelectorAll("th")].map((one) => one.textContent);
    if (told.titles.join("\n") !== titles.join("\n")) { location.reload(); return; }
    this.version = told.version;
    document.querySelector("p.subtitle").textContent = told.subtitle;
    const now = new Date().toLocaleTimeString();
    this.say(told.trouble || `As of ${now}, looked at every ${this.every_s} s`, told.trouble ? "bad" : "note");
    for (const one of told.rows) this.row(one);
    if (told.rows.length) this.table.filter();
    if (curves.length && told.by) {
      const runs = new Map(curves[0].data.runs.map((one) => [one.row, one]));
      for (const one of told.curves) runs.set(one.row, one);
      curves[0].replace([...runs.values()].sort((a, b) => a.row - b.row), told.by);
    }
  }

  row({ row, cells }) {
    const body = this.table.tBodies[0], titles = [...this.table.querySelectorAll("th")];
    const isLong = [...(body.rows[0]?.cells || [])].map((cell) => cell.classList.contains("wrap"));
    numbered([...body.rows]);
    let line = [...body.rows].find((one) => +one.dataset.first === row);
    if (!line) {
      line = body.insertRow();
      line.dataset.first = row;
      titles.forEach(() => line.insertCell());
    }
    cells.forEach((told, i) => {
      const cell = line.cells[i], classes = [titles[i].className === "right" ? "right" : "", isLong[i] ? "wrap" : "", told.tone || ""];
      cell.className = classes.filter(Boolean).join(" ");
      if (told.value === undefined) delete cell.dataset.value; else cell.dataset.value = told.value;
      if (i === 0) { if (!cell.textContent) cell.textContent = told.text; return; }
      cell.textContent = told.text;
      if (told.bar === undefined) return;
      const bar = html("span", "bar"), inner = html("i");
      inner.style.width = `${Math.round(100 * told.bar)}%`;
      bar.append(inner);
      cell.append(bar);
    });
  }
}

queueMicrotask(() => document.querySelectorAll("figure.live").forEach((figure) => new Live(figure)));
