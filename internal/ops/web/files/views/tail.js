// Events as they happen. The table holds the last ones; what is read out is how many there were, now and then.

import { follow } from "../api.js";
import { el, replace } from "../dom.js";
import { columns, kinds, reasons } from "../events.js";
import { tableRow } from "../parts.js";
import { count } from "../text.js";
import { filterForm } from "./filter.js";

/** @typedef {import("../events.js").Event} Event */

export const title = () => "Live";

const most = 200; // rows
const beat = 250; // milliseconds between changes of the table
const quiet = 10_000; // milliseconds between what is read out

/** @param {import("../main.js").Context} context */
export async function show({ main, params, signal }) {
  const filter = Object.fromEntries(
    ["kind", "reason", "client", "subject"].map((name) => [name, params.get(name) ?? ""]),
  );
  const live = new Live(signal);
  main.append(
    filterForm("tail", [
      {
        name: "kind",
        label: "Kind",
        value: filter.kind,
        options: [["", "all"], ...kinds.map((k) => /** @type {[string, string]} */ ([k, k]))],
      },
      { name: "reason", label: "Reason", value: filter.reason, suggestions: reasons },
      { name: "client", label: "Client", value: filter.client },
      { name: "subject", label: "Subject", value: filter.subject },
    ]),
    ...live.elements,
  );
  follow(
    "evidence",
    { follow: "true", ...filter },
    {
      event: (event) => live.add(event),
      state: (problem) => live.connected(problem),
      signal,
    },
  );
}

/** The table of the last events, and what is said about it. */
class Live {
  /** @param {AbortSignal} signal ends it */
  constructor(signal) {
    /** @type {Event[]} */
    this.waiting = [];
    this.paused = false;
    this.problem = "";
    this.seen = 0;
    this.said = 0;
    this.missed = 0;
    this.body = el("tbody", { role: "rowgroup" });
    this.line = el("p.note", {}, "Connecting…");
    this.spoken = el("p.hidden", { role: "status" });
    this.button = el("button", { type: "button", "aria-pressed": "false", click: () => this.pause() }, "Pause");
    const head = el(
      "thead",
      { role: "rowgroup" },
      el(
        "tr",
        { role: "row" },
        columns.map((c) => el(c.numeric ? "th.number" : "th", { role: "columnheader", scope: "col" }, c.head)),
      ),
    );
    this.elements = [
      el("p.actions", {}, this.button),
      this.line,
      this.spoken,
      el(
        "div.table",
        {},
        el("table", { role: "table" }, el("caption.hidden", {}, "Events, the newest first"), head, this.body),
      ),
    ];
    const drawing = setInterval(() => this.draw(), beat);
    const speaking = setInterval(() => this.speak(), quiet);
    signal.addEventListener("abort", () => (clearInterval(drawing), clearInterval(speaking)), { once: true });
  }

  /** @param {Event} event */
  add(event) {
    this.seen++;
    this.waiting.push(event);
    if (this.waiting.length > most) {
      this.waiting.shift();
      this.missed++;
    }
  }

  /** @param {string} problem empty if it is connected */
  connected(problem) {
    this.problem = problem;
    if (problem) replace(this.spoken, problem);
    this.say();
  }

  pause() {
    this.paused = !this.paused;
    this.button.setAttribute("aria-pressed", String(this.paused));
    replace(this.button, this.paused ? "Resume" : "Pause");
    this.draw();
    this.say();
  }

  draw() {
    if (this.waiting.length > 0 && !this.paused) {
      const rows = this.waiting
        .splice(0)
        .reverse()
        .map((event) => tableRow(columns, event));
      this.body.prepend(...rows);
      while (this.body.childElementCount > most) this.body.lastElementChild?.remove();
    }
    this.say();
  }

  say() {
    const text =
      this.problem ||
      (this.paused
        ? `Paused. ${count(this.waiting.length + this.missed, "event")} since then.`
        : this.seen === 0
          ? "Connected. No events yet: they appear here as they happen."
          : `Connected. ${count(this.seen, "event")}; the table has the last ${most}.`);
    if (!this.paused) this.missed = 0;
    if (this.line.textContent !== text) replace(this.line, text);
  }

  speak() {
    if (this.seen > this.said) replace(this.spoken, `${count(this.seen - this.said, "new event")}.`);
    this.said = this.seen;
  }
}
