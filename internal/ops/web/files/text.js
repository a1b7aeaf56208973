// Values in words. Nothing here touches the document.

// Characters that are not seen, or that change the order of others: controls, bidirectional formatting, joiners, and
// the tags and variation selectors that can hide text.
const controls = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f";
const formats = "\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb";
const unseen = new RegExp(`[${controls}${formats}\\u{fe00}-\\u{fe0f}\\u{e0000}-\\u{e0fff}]`, "gu");

/**
 * Returns text in which characters that a reader would not see are written as \u{…}.
 *
 * @param {unknown} value
 */
export function visible(value) {
  return String(value).replace(unseen, (c) => `\\u{${c.codePointAt(0)?.toString(16)}}`);
}

/**
 * Returns a value if it is an array, and else an empty one: a field that the server leaves out has no elements.
 *
 * @template T
 * @param {T[] | null | undefined} value
 * @returns {T[]}
 */
export function list(value) {
  return Array.isArray(value) ? value : [];
}

/**
 * Returns a number and its noun: "1 Service", "2 Services".
 *
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export function count(n, one, many = `${one}s`) {
  return `${number(n)} ${n === 1 ? one : many}`;
}

/**
 * Returns a number with its thousands separated, or a dash if it is not known.
 *
 * @param {unknown} n
 */
export function number(n) {
  return typeof n === "number" && Number.isFinite(n) ? n.toLocaleString("en-US") : "–";
}

/**
 * Returns a share between 0 and 1 in percent.
 *
 * @param {number} share
 */
export function percent(share) {
  if (share > 0 && share < 0.01) return "< 1 %";
  return `${Math.round(share * 100)} %`;
}

/**
 * Returns a duration of seconds in one or two units.
 *
 * @param {unknown} seconds
 */
export function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 2 * 86400) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/**
 * Returns the time of day of an instant, or the instant as it was given.
 *
 * @param {string} instant RFC 3339
 */
export function clock(instant) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return String(instant ?? "");
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/**
 * Returns the day of an instant, such as 2026-11-27.
 *
 * @param {string} instant RFC 3339
 */
export function day(instant) {
  const date = new Date(instant);
  return Number.isNaN(date.getTime()) ? String(instant ?? "") : date.toISOString().slice(0, 10);
}

/**
 * Returns items separated by commas, the last by "and".
 *
 * @param {string[]} items
 */
export function join(items) {
  if (items.length < 2) return items.join("");
  return `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

/**
 * Returns an error as a sentence. The server's begin with a small letter and have no full stop.
 *
 * @param {unknown} err
 */
export function sentence(err) {
  const message = err instanceof Error ? err.message : String(err);
  return message.charAt(0).toUpperCase() + message.slice(1).replace(/([^.?!])$/, "$1.");
}
