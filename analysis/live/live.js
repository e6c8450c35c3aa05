// Follows a study: asks the server for the sections that changed, and shows when no answer comes. The reader's
// filter, order, choices and open parts stay.
class Live {
  constructor(figure) {
    Object.assign(this, JSON.parse(figure.querySelector("script").textContent));
    this.heard = new Date();
    this.line = html("p", "note", "");
    this.line.setAttribute("role", "status");
    document.querySelector("header").append(this.line);
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

  take(answer) {
    this.version = answer.version;
    document.querySelector("p.subtitle").textContent = answer.subtitle;
    this.say(answer.trouble || `As of ${new Date().toLocaleTimeString()}, read every ${this.every_s} s`, answer.trouble ? "bad" : "note");
    if (answer.sections.some(([, text]) => text !== null)) this.replace(answer.sections);
  }

  replace(sections) {
    const input = document.querySelector(".filter input"), sorted = document.querySelector("table.sortable th[aria-sort]");
    const typed = input?.value, order = sorted && [sorted.textContent, sorted.getAttribute("aria-sort")];
    const figure = document.querySelector("figure.curves"), kept = figure?.curves?.kept();
    const open = new Set([...document.querySelectorAll("details[open] summary")].map((one) => one.textContent));
    const before = new Map([...document.querySelectorAll("section")].map((one) => [one.dataset.title, one]));
    const fresh = [];
    const now = sections.map(([title, text]) => {
      if (text === null && before.has(title)) return before.get(title);
      const made = html("section");
      made.dataset.title = title;
      made.innerHTML = text || "";
      made.querySelector("figure.live")?.remove();
      fresh.push(made);
      return made;
    });
    before.forEach((one) => one.remove());
    document.querySelector("header").after(...now);
    for (const made of fresh) this.start(made, open);
    if (fresh.some((one) => one.querySelector(".filter"))) {
      const [name, way] = order || [];
      const head = [...document.querySelectorAll("table.sortable")][0].querySelectorAll("th");
      const button = [...head].find((one) => one.textContent === name)?.querySelector("button");
      for (let i = 0; button && i < (way === "descending" ? 1 : 2); i++) button.click();
      const field = document.querySelector(".filter input");
      field.value = typed || "";
      field.dispatchEvent(new Event("input"));
    }
    startCurves(document, kept);
  }

  start(section, open) {
    section.querySelectorAll("table.sortable").forEach(sortable);
    section.querySelectorAll("button.copy").forEach(copying);
    section.querySelectorAll("figure.filter").forEach(filterable);
    section.querySelectorAll("summary").forEach((one) => { one.parentElement.open = open.has(one.textContent); });
    startPlots(section);
  }
}

queueMicrotask(() => document.querySelectorAll("figure.live").forEach((figure) => new Live(figure)));
