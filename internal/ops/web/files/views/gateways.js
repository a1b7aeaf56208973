// Gateways and IngressClasses: their listeners and certificates, what is wrong first.

import { get } from "../api.js";
import { el, link } from "../dom.js";
import { facts, lacks, problems, section, state, table, unread, worstFirst } from "../parts.js";
import { href } from "../route.js";
import { day, list, number } from "../text.js";

/** @typedef {import("../parts.js").Problem} Problem */

export const title = () => "Gateways";

const few = 20; // Gateways that are shown at once

/** @param {import("../main.js").Context} context */
export async function show({ main, params, signal }) {
  const asked = params.get("route") ?? "";
  const data = await get("gateways", { route: asked }, signal);
  const all = list(data.gateways);
  if (all.length === 0) {
    const none = "There are no Gateways, and no IngressClasses with Ingresses.";
    const why = unread(data, "Gateway", "Ingress", "GatewayClass") || none;
    main.append(
      asked && el("p.lead", {}, `Whether a Gateway serves the route ${asked} is not known here.`),
      el("p.empty", {}, why),
      list(data.routes).length > 0 ? routes("Routes", data) : "",
      lacks(data) ?? "",
    );
    return;
  }
  const wrong = worstFirst([...list(data.routes).flatMap(routeTroubles), ...all.flatMap(troubles)]);
  const judged = asked ? "this route" : "routes";
  const fine = `Nothing is known to be wrong with Gateways, listeners, certificates and ${judged}.`;
  const place = el("div");
  const rest = el("p.more");
  main.append(
    asked && routes(`Route ${asked}`, data),
    section("What is wrong", wrong.length > 0 ? problems(wrong) : el("p.lead.fine", {}, fine)),
    place,
    rest,
    asked ? el("p.actions", {}, link(href("gateways", []), "All routes")) : routes("Routes", data),
    lacks(data) ?? "",
  );
  let shown = 0;
  const more = () => {
    place.append(...all.slice(shown, shown + few).map(gateway));
    shown = Math.min(shown + few, all.length);
    rest.replaceChildren();
    if (shown < all.length) {
      const text = `Show more: ${number(shown)} of ${number(all.length)} are shown`;
      rest.append(el("button", { type: "button", click: more }, text));
      return;
    }
    const leftOut = data.more?.gateways ?? 0;
    if (leftOut > 0) rest.append(`${number(leftOut)} more are not listed.`);
  };
  more();
}

/** @param {any} r */
function routeName(r) {
  return `${r.namespace}/${r.name}`;
}

/**
 * @param {string} heading
 * @param {any} data of the server
 */
function routes(heading, data) {
  return section(
    heading,
    table({
      caption: heading,
      rows: data.routes,
      more: data.more?.routes,
      empty: "There is none, or it is not read here.",
      columns: [
        { head: "Route", cell: (r) => [el("span.name", {}, routeName(r)), note(r.kind)] },
        { head: "Hosts", cell: (r) => el("span.name", {}, list(r.hosts).join(", ") || "those of its listeners") },
        { head: "Listeners", cell: (r) => firstOf(r.listeners, listener) },
        { head: "Backends", cell: (r) => firstOf(r.backends, backend) },
        { head: "State", cell: (r) => [stateOf(r), note(r.why)] },
        {
          head: "Explain",
          cell: (r) => r.url && link(href("explain", [], { target: r.url }), r.url),
        },
      ],
    }),
  );
}

/**
 * Returns the first elements of a list, each in a line, and how many there are more.
 *
 * @param {any} all
 * @param {(one: any) => any} made
 */
function firstOf(all, made) {
  const most = 4;
  const rest = list(all).length - most;
  const lines = list(all)
    .slice(0, most)
    .map((one) => el("div", {}, made(one)));
  return [...lines, rest > 0 && note(`and ${number(rest)} more`)];
}

/** @param {any} l a listener of a route */
function listener(l) {
  const name = [[l.namespace, l.name].filter(Boolean).join("/"), l.listener].filter(Boolean).join(" ");
  return [`${l.port}/${l.protocol}`, note(name)];
}

/** @param {any} b a backend of a route */
function backend(b) {
  const name = `${b.namespace}/${b.name}`;
  return [link(href("service", [b.namespace, b.name]), name), b.port && ` port ${b.port}`];
}

/**
 * @param {any} r
 * @returns {Problem[]}
 */
function routeTroubles(r) {
  return r.state === "broken" ? [{ meaning: "bad", where: `${r.kind} ${routeName(r)}`, what: r.why }] : [];
}

/** @param {any} g a Gateway or a route */
function stateOf(g) {
  return state(g.state === "other" ? "served by another controller" : g.state);
}

/** @param {any} g */
function nameOf(g) {
  return `${g.kind} ${[g.namespace, g.name].filter(Boolean).join("/")}`;
}

/** @param {any} g */
function gateway(g) {
  return section(
    nameOf(g),
    facts([
      ["State", g.state && [stateOf(g), note(g.why)]],
      ["Class", g.class],
      ["Addresses", list(g.addresses).join(", ") || "none"],
    ]),
    table({
      caption: `Listeners of ${nameOf(g)}`,
      rows: g.listeners,
      empty: "It has no listeners.",
      columns: [
        { head: "Listener", cell: (l) => el("span.name", {}, l.name || "–") },
        { head: "Port", cell: (l) => `${l.port}/${l.protocol}` },
        { head: "Host", cell: (l) => el("span.name", {}, l.hostname || "all hosts") },
        { head: "Routes", numeric: true, cell: (l) => number(l.routes) },
        { head: "Conditions", cell: (l) => list(l.conditions).map(condition) },
        { head: "Certificate", cell: (l) => certificatesOf(l).map(certificate) },
      ],
    }),
  );
}

/** @param {string | undefined} text */
function note(text) {
  return text && el("span.note", {}, text);
}

/** @param {any} c */
function condition(c) {
  return el(
    "div",
    {},
    state(`${c.type} ${c.status}`, good(c) ? "good" : "bad"),
    !good(c) && note([c.reason, c.message].filter(Boolean).join(": ")),
  );
}

/**
 * Reports whether a condition is as it should be.
 *
 * @param {any} c
 */
function good(c) {
  const negative = ["Conflicted", "OverlappingTLSConfig"].includes(c.type); // true is what is wrong
  return c.status === (negative ? "False" : "True");
}

/** @param {any} l */
function certificatesOf(l) {
  const several = list(l.certificates);
  return several.length > 0 ? several : [l.certificate].filter(Boolean);
}

/** What the states of certificates are called. */
const certificateStates = { ok: "valid", expiring: "expires soon", expired: "expired" };

/** @param {any} c */
function certificate(c) {
  const word = Object.hasOwn(certificateStates, c.state)
    ? certificateStates[/** @type {keyof certificateStates} */ (c.state)]
    : c.state;
  return el(
    "div",
    {},
    state(word),
    el("span.note", {}, c.secret, c.notAfter && `, until ${day(c.notAfter)}`),
    list(c.names).length > 0 && el("span.note", {}, "for ", el("span.name", {}, list(c.names).join(", "))),
    note(c.state === "expired" || c.state === "expiring" ? "" : c.why),
  );
}

/**
 * Returns what is wrong with a Gateway.
 *
 * @param {any} g
 * @returns {Problem[]}
 */
function troubles(g) {
  if (g.state === "other") return []; // it is no concern of this program
  const ofListeners = list(g.listeners).flatMap((l) =>
    listenerTroubles(`${nameOf(g)}, listener ${l.name || l.port}`, l),
  );
  if (g.state !== "broken" || !g.why || (ofListeners.length > 0 && String(g.why).startsWith("listener "))) {
    return ofListeners; // which say the same
  }
  return [{ meaning: "bad", where: nameOf(g), what: g.why }, ...ofListeners];
}

/**
 * @param {string} where
 * @param {any} l
 * @returns {Problem[]}
 */
function listenerTroubles(where, l) {
  const certificates = certificatesOf(l).flatMap((c) => certificateTroubles(where, c));
  const told = certificatesOf(l).map((c) => c.why);
  const conditions = list(l.conditions)
    .filter((c) => !good(c))
    .map((c) => c.message || `${c.type} is ${c.status}: ${c.reason}.`);
  const others = [...new Set([...conditions, ...(l.whyNot ? [l.whyNot] : [])])].filter((what) => !told.includes(what));
  return [...others.map((what) => ({ meaning: /** @type {const} */ ("bad"), where, what })), ...certificates];
}

/**
 * @param {string} where
 * @param {any} c
 * @returns {Problem[]}
 */
function certificateTroubles(where, c) {
  const cure = "renew it, and put the new one into the Secret; it is used at once";
  const mend = "create or correct the Secret, or the listener's reference to it; it is used at once";
  const subject = `The certificate of Secret ${c.secret}`;
  switch (c.state) {
    case "expired":
      return [
        { meaning: "bad", where, what: `${subject} has expired on ${day(c.notAfter)}: clients refuse it.`, cure },
      ];
    case "expiring":
      return [{ meaning: "doubtful", where, what: `${subject} expires on ${day(c.notAfter)}.`, cure }];
    case "broken":
      return [
        { meaning: "bad", where, what: `${subject} cannot be used: ${c.why || "it does not say why"}.`, cure: mend },
      ];
  }
  return [];
}
