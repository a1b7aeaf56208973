// A graph of events over time, drawn by uPlot. index.html loads its script beside the modules.

import { el, replace } from "./dom.js";
import { kindNames, kinds } from "./events.js";
import { clock, count, number } from "./text.js";

/** @typedef {import("./events.js").Event} Event */

/**
 * Counts events of each kind in intervals of time up to the last event.
 *
 * @param {Event[]} events
 * @param {number} intervals
 * @returns {{times: number[], step: number, counts: Record<string, number[]>, totals: Record<string, number>}} times in
 *   seconds since 1970; without events there are none
 */
export function tally(events, intervals) {
  const dated = events
    .map((e) => ({ at: new Date(e.time).getTime() / 1000, kind: e.kind, weight: e.weight ?? 1 }))
    .filter((e) => Number.isFinite(e.at));
  const totals = Object.fromEntries(kinds.map((k) => [k, 0]));
  if (dated.length === 0) return { times: [], step: 0, counts: {}, totals };
  const first = dated.reduce((least, e) => Math.min(least, e.at), Infinity);
  const last = dated.reduce((most, e) => Math.max(most, e.at), -Infinity);
  const step = Math.max(1, Math.ceil((last - first + 1) / intervals));
  const start = Math.floor(first / step) * step;
  const n = Math.floor((last - start) / step) + 1;
  const times = Array.from({ length: n }, (_, i) => start + i * step);
  const counts = Object.fromEntries(kinds.map((k) => [k, new Array(n).fill(0)]));
  for (const e of dated) {
    if (!Object.hasOwn(counts, e.kind)) continue;
    counts[e.kind][Math.floor((e.at - start) / step)] += e.weight;
    totals[e.kind] += e.weight;
  }
  return { times, step, counts, totals };
}

/**
 * Makes a figure of events over time, with a sentence that says the same in numbers.
 *
 * @param {Event[]} events
 * @param {AbortSignal} signal ends it
 */
export function graph(events, signal) {
  const t = tally(events, 60);
  if (t.times.length === 0) return el("p.empty", {}, "No events yet: they appear here as soon as there are some.");
  const present = kinds.filter((k) => t.totals[k] > 0);
  const sums = present.map((k) => `${number(t.totals[k])} ${kindNames[/** @type {keyof kindNames} */ (k)]}`);
  const span =
    `from ${clock(new Date(t.times[0] * 1000).toISOString())} to ` +
    clock(new Date((t.times.at(-1) ?? 0) * 1000 + t.step * 1000).toISOString());
  const plot = el("div.plot", { "aria-hidden": "true" });
  const keys = el(
    "ul.legend",
    { "aria-hidden": "true" },
    present.map((k) => el(`li.${k}`, {}, kindNames[/** @type {keyof kindNames} */ (k)])),
  );
  draw(plot, t, signal);
  return el(
    "figure",
    {},
    plot,
    keys,
    el("figcaption", {}, `Events per ${count(t.step, "second")} ${span}: ${sums.join(", ")}.`),
  );
}

/**
 * Draws, and draws again when the width or the color scheme change.
 *
 * @param {HTMLElement} plot
 * @param {ReturnType<typeof tally>} t
 * @param {AbortSignal} signal
 */
async function draw(plot, t, signal) {
  const script = document.getElementById("uplot");
  const library = () => /** @type {any} */ (window).uPlot;
  if (!library()) {
    await new Promise((loaded) => {
      script?.addEventListener("load", loaded, { once: true });
      script?.addEventListener("error", loaded, { once: true });
    });
  }
  if (!library() || signal.aborted) return; // the sentence below says the same
  let chart = /** @type {any} */ (null);
  const again = () => {
    if (!plot.isConnected || plot.clientWidth === 0) return;
    chart?.destroy();
    replace(plot);
    chart = new (library())(options(plot, t), [t.times, ...kinds.map((k) => t.counts[k])], plot);
  };
  const watch = new ResizeObserver(again);
  watch.observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again, { signal });
  signal.addEventListener("abort", () => (watch.disconnect(), chart?.destroy()), { once: true });
}

/**
 * @param {HTMLElement} plot
 * @param {ReturnType<typeof tally>} t
 */
function options(plot, t) {
  const color = (/** @type {string} */ name) => getComputedStyle(plot).getPropertyValue(name).trim();
  const axis = {
    stroke: color("--quiet"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  const dashes = [[], [6, 4], [2, 3]]; // kinds differ without colors, too
  return {
    width: plot.clientWidth,
    height: 180,
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: true },
      y: {
        range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ max) => [
          0,
          Math.max(1, max * 1.1),
        ],
      },
    },
    axes: [
      {
        ...axis,
        values: (/** @type {any} */ _, /** @type {number[]} */ ticks) =>
          ticks.map((s) => clock(new Date(s * 1000).toISOString()).slice(0, t.times.length * t.step > 600 ? 5 : 8)),
        space: 80,
      },
      { ...axis, size: 56, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(number) },
    ],
    series: [
      {},
      ...kinds.map((k, i) => ({
        stroke: color(`--${k}`),
        width: 2,
        dash: dashes[i],
        show: t.totals[k] > 0,
        points: { show: t.times.length < 3 },
      })),
    ],
  };
}
