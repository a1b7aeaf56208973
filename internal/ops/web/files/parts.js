// What views are made of: sections, tables, states, and what stands in for data that are not there.

import { el, fill, link, replace } from "./dom.js";
import { list, number, sentence } from "./text.js";

/** @typedef {import("./dom.js").Child} Child */

let unique = 0;

/**
 * Makes a section with a heading.
 *
 * @param {string} title
 * @param {...(Child | Child[])} children
 */
export function section(title, ...children) {
  const id = `section-${++unique}`;
  return el("section", { "aria-labelledby": id }, el("h2", { id }, title), ...children);
}

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} head
 * @property {(row: Row) => Child | Child[]} cell
 * @property {boolean} [numeric]
 */

/**
 * @template Row
 * @typedef {object} Table
 * @property {string} caption what the table lists; read out, not shown
 * @property {Column<Row>[]} columns the first is the header of the row
 * @property {Row[] | null | undefined} rows
 * @property {string} empty the sentence if there are none
 * @property {number} [more] rows that the server leaves out
 */

const page = 50; // rows that are shown at once

/**
 * Makes a table. Of many rows it shows some, with a button for more. On narrow screens, where each row becomes a block,
 * the roles keep it a table for those who have it read out.
 *
 * @template Row
 * @param {Table<Row>} t
 * @returns {HTMLElement}
 */
export function table({ caption, columns, rows, empty, more: leftOut = 0 }) {
  const all = list(rows);
  if (all.length === 0) return el("p.empty", {}, empty);
  const head = el(
    "thead",
    { role: "rowgroup" },
    el(
      "tr",
      { role: "row" },
      columns.map((c) => el(c.numeric ? "th.number" : "th", { role: "columnheader", scope: "col" }, c.head)),
    ),
  );
  const body = el("tbody", { role: "rowgroup" });
  const rest = el("p.more");
  let shown = 0;
  const more = () => {
    const next = all.slice(shown, shown + page);
    shown += next.length;
    fill(
      body,
      next.map((row) => tableRow(columns, row)),
    );
    replace(
      rest,
      shown < all.length && [
        `${number(shown)} of ${number(all.length)} are shown. `,
        el("button", { type: "button", click: more }, `Show ${number(Math.min(page, all.length - shown))} more`),
      ],
    );
  };
  more();
  return el(
    "div.table",
    {},
    el("table", { role: "table" }, el("caption.hidden", {}, caption), head, body),
    rest,
    leftOut > 0 && el("p.more", {}, `${number(leftOut)} more are not listed.`),
  );
}

/**
 * Makes a row of a table.
 *
 * @template Row
 * @param {Column<Row>[]} columns
 * @param {Row} row
 */
export function tableRow(columns, row) {
  return el(
    "tr",
    { role: "row" },
    columns.map((c, i) => {
      const name = (i === 0 ? "th" : "td") + (c.numeric ? ".number" : "");
      const role = i === 0 ? { role: "rowheader", scope: "row" } : { role: "cell" };
      return el(name, { ...role, "data-head": c.head }, c.cell(row));
    }),
  );
}

/**
 * Makes a list of facts: names and their values. Those without a value are left out.
 *
 * @param {[string, Child | Child[]][]} facts
 */
export function facts(facts) {
  const given = facts.filter(
    ([, value]) =>
      value !== undefined &&
      value !== null &&
      value !== "" &&
      value !== false &&
      !(Array.isArray(value) && value.length === 0),
  );
  return el(
    "dl.facts",
    {},
    given.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

/**
 * Returns why objects of a kind are not read, in a sentence; empty if they are. A view without them knows nothing,
 * which is not the same as that there are none.
 *
 * @param {any} data of the server
 * @param {...string} kinds
 */
export function unread(data, ...kinds) {
  const found = list(data.notRead).find((n) => kinds.includes(n.kind));
  return found ? sentence(found.why) : "";
}

/**
 * Says what a view lacks because it is not read.
 *
 * @param {any} data of the server
 */
export function lacks(data) {
  const all = list(data.notRead);
  if (all.length === 0) return null;
  return section(
    "Not read by this process",
    el(
      "ul.plain",
      {},
      all.map((n) => el("li.note", {}, sentence(n.why))),
    ),
  );
}

/** What the words for a state mean: good, bad, doubtful, or nothing to judge. */
const meanings = {
  good: ["ok", "ready", "current", "up", "used", "valid"],
  bad: ["broken", "not ready", "down", "not used", "expired"],
  doubtful: ["not known", "unknown", "stale", "loading", "expires soon"],
};

/**
 * Shows a state: a word, with a sign and a color that mean the same.
 *
 * @param {string} word
 * @param {"good" | "bad" | "doubtful" | "plain"} [meaning] that of the word, if it is left out
 */
export function state(word, meaning) {
  const lower = String(word).toLowerCase();
  const found = Object.entries(meanings).find(([, words]) => words.includes(lower));
  return el(`span.state.${meaning ?? found?.[0] ?? "plain"}`, {}, word);
}

/**
 * @typedef {object} Problem
 * @property {string} what what is wrong, in a sentence
 * @property {string} [cure]
 * @property {Child | Child[]} [where] the layer, object or part
 * @property {"bad" | "doubtful" | "plain"} [meaning]
 */

const fewProblems = 10; // that are shown at once

/**
 * Lists problems, each with its cure below it. Of many it shows some, with a button for the others.
 *
 * @param {Problem[]} problems the worst first
 */
export function problems(problems) {
  const all = el("ul.problems", {}, problems.slice(0, fewProblems).map(problem));
  if (problems.length <= fewProblems) return all;
  const others = problems.slice(fewProblems);
  const more = el(
    "p.more",
    {},
    el(
      "button",
      { type: "button", click: () => (fill(all, others.map(problem)), more.remove()) },
      `Show ${number(others.length)} more`,
    ),
  );
  return el("div", {}, all, more);
}

/** @param {Problem} p */
function problem(p) {
  return el(
    `li.${p.meaning ?? "bad"}`,
    {},
    p.where && el("p.where", {}, p.where),
    el("p.what", {}, p.what),
    p.cure && el("p.cure", {}, el("strong", {}, "Cure: "), p.cure),
  );
}

/**
 * Sorts problems.
 *
 * @param {Problem[]} problems
 */
export function worstFirst(problems) {
  const order = ["bad", "doubtful", "plain"];
  return problems.toSorted((a, b) => order.indexOf(a.meaning ?? "bad") - order.indexOf(b.meaning ?? "bad"));
}

/**
 * Returns problems of findings as `portolan check` reports them, the worst first.
 *
 * @param {any} findings
 * @returns {Problem[]}
 */
export function ofFindings(findings) {
  const order = ["error", "warning", "note"];
  return list(findings)
    .toSorted((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity))
    .map((f) => ({
      what: f.message ?? f.rule,
      cure: f.fix ?? f.cure,
      where: [f.severity, " · ", f.href ? link(f.href, f.object) : f.object, f.field && ` · ${f.field}`],
      meaning: f.severity === "error" ? "bad" : f.severity === "warning" ? "doubtful" : "plain",
    }));
}

/**
 * Shows what a promise gives, and meanwhile that it is awaited, or in one sentence why it failed: one part of a view
 * may fail without the others.
 *
 * @template T
 * @param {Element} place
 * @param {Promise<T>} promise
 * @param {(value: T) => Child | Child[]} show
 * @param {AbortSignal} signal
 */
export async function awaited(place, promise, show, signal) {
  const slow = setTimeout(() => replace(place, el("p.empty", {}, "Waiting for the server…")), 500);
  try {
    const value = await promise;
    if (!signal.aborted) replace(place, show(value));
  } catch (err) {
    if (signal.aborted) return;
    replace(place, el("p.empty", {}, sentence(err)));
  } finally {
    clearTimeout(slow);
  }
}

/**
 * Makes a button that copies text.
 *
 * @param {string} text
 * @param {string} label
 */
export function copyButton(text, label) {
  const said = el("span", { role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      replace(said, " Copied.");
    } catch {
      replace(said, " The browser does not allow it: select the text and copy it.");
    }
  };
  return el("p", {}, el("button", { type: "button", click: copy }, label), said);
}
