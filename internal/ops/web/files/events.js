// Events of the evidence ring, in words.

import { el, link } from "./dom.js";
import { table } from "./parts.js";
import { meanings } from "./reasons.js";
import { href } from "./route.js";
import { clock, number, percent } from "./text.js";

/**
 * @typedef {object} Event
 * @property {string} time RFC 3339
 * @property {"query" | "drop" | "request"} kind
 * @property {string} reason
 * @property {string} client
 * @property {string} [clientPod]
 * @property {string} subject
 * @property {string} [detail]
 * @property {"http" | "https"} [scheme] that of a request
 * @property {number} [weight] events that it stands for
 */

/** The kinds, in the order of the legend. */
export const kinds = ["query", "drop", "request"];

/** What kinds are called in the plural. */
export const kindNames = { query: "DNS queries", drop: "dropped connections", request: "requests" };

/** All reasons, for suggestions. */
export const reasons = [...new Set(Object.values(meanings).flatMap(Object.keys))];

/**
 * Shows a reason, and what it means if that is known.
 *
 * @param {string} kind
 * @param {string} reason
 */
function reasonCell(kind, reason) {
  const known = Object.hasOwn(meanings, kind) && Object.hasOwn(meanings[kind], reason);
  return [el("b", {}, reason), known && el("span.note", {}, meanings[kind][reason])];
}

/** A destination that the command explain takes: protocols without ports, such as ICMP, are none. */
const destination = /^(\[[0-9a-f:.]+\]|[0-9.]+):[0-9]+\/(tcp|udp|sctp)$/i;

/** The detail of an HTTP request: its method and status. Those of connections have no status. */
const request = /^([A-Za-z-]+) [0-9]+(?: |$)/;

/**
 * Returns the address of an explanation of an event; empty if there is nothing that can be explained.
 *
 * @param {Event} event
 */
export function explanation(event) {
  const from = event.clientPod || "";
  const target = event.subject;
  if (event.kind === "query" && from) return href("explain", [], { target, from, type: event.detail });
  if (event.kind === "drop" && from && destination.test(target)) return href("explain", [], { target, from });
  const method = event.kind === "request" && event.detail?.match(request)?.[1];
  const url = `${event.scheme === "https" ? "https" : "http"}://${target}`;
  const hasHost = target !== "" && !target.startsWith("/") && URL.canParse(url);
  return method && hasHost ? href("explain", [], { target: url, from, method }) : "";
}

/** @type {import("./parts.js").Column<Event>[]} */
export const columns = [
  { head: "Time", cell: (e) => el("time", { datetime: e.time }, clock(e.time)) },
  { head: "Kind", cell: (e) => e.kind },
  { head: "Reason", cell: (e) => reasonCell(e.kind, e.reason) },
  { head: "Client", cell: (e) => client(e) },
  { head: "Subject", cell: (e) => [el("span.name", {}, e.subject), e.detail && el("span.note", {}, e.detail)] },
  { head: "Stands for", numeric: true, cell: (e) => number(e.weight ?? 1) },
  { head: "Explanation", cell: (e) => explanation(e) && link(explanation(e), "Explain") },
];

/** @param {Event} event */
function client(event) {
  if (!event.clientPod) return el("span.name", {}, event.client);
  const [namespace, name] = event.clientPod.split("/");
  return [link(href("pod", [namespace, name ?? ""]), event.clientPod), el("span.note", {}, event.client)];
}

/**
 * Lists what fails most.
 *
 * @param {any} top
 * @param {string} grouped
 */
export function topTable(top, grouped) {
  return table({
    caption: `What fails most, by ${grouped}`,
    rows: top.items,
    empty: "No failures have been seen.",
    columns: [
      {
        head: grouped === "client" ? "Client" : grouped === "route" ? "Route" : "Subject",
        cell: (i) => el("span.name", {}, i.key),
      },
      { head: "Kind", cell: (i) => i.kind },
      { head: "Reason", cell: (i) => reasonCell(i.kind, i.reason) },
      { head: "Events", numeric: true, cell: (i) => number(i.count) },
      { head: "Share", numeric: true, cell: (i) => percent(i.share ?? 0) },
      {
        head: "Live",
        cell: (i) =>
          link(
            href("tail", [], { kind: i.kind, reason: i.reason, [grouped]: grouped === "route" ? "" : i.key }),
            "Watch",
          ),
      },
    ],
  });
}
