// The first view: what is wrong now, what fails most, and how fresh everything is.

import { get, lines } from "../api.js";
import { el, link } from "../dom.js";
import { topTable } from "../events.js";
import { graph } from "../graph.js";
import { awaited, lacks, ofFindings, problems, section, state, table, unread, worstFirst } from "../parts.js";
import { count, duration, join, list, number, sentence } from "../text.js";

export const title = () => "Overview";

/** @param {import("../main.js").Context} context */
export async function show({ main, signal }) {
  const now = el("div");
  const objects = el("div");
  const events = el("div");
  const failures = el("div");
  const rest = el("div");
  main.append(
    now,
    section("What is wrong with objects", objects),
    section("Events over time", events),
    section("Top failures", failures, el("p", {}, link("#/top", "All failures"), " · ", link("#/tail", "Watch live"))),
    rest,
  );
  await Promise.all([
    awaited(objects, get("findings", {}, signal), faults, signal),
    awaited(events, lines("evidence", { limit: 300 }, signal), (found) => graph(found, signal), signal),
    awaited(failures, get("top", { by: "subject", limit: 5 }, signal), (top) => topTable(top, "subject"), signal),
    get("overview", {}, signal).then((o) => {
      now.replaceChildren(attention(o));
      rest.replaceChildren(...tables(o), lacks(o) ?? "");
    }),
  ]);
}

/**
 * Says what is wrong, the worst first.
 *
 * @param {any} o the overview
 */
function attention(o) {
  const listed = worstFirst([...parts(o), ...sources(o), ...upstreams(o), ...agents(o)]);
  const reads =
    o.reads === "process"
      ? "This page shows what this process reads; with admin.page: cluster it shows all kinds."
      : "";
  const process = [o.process?.command, o.process?.version && `version ${o.process.version}`].filter(Boolean).join(", ");
  const verdict =
    listed.length > 0
      ? el("p.lead", {}, count(listed.length, "thing needs", "things need"), " attention.")
      : el(
          "p.lead.fine",
          {},
          "Nothing is known to be wrong with this process, its sources and its upstreams.",
        );
  return section(
    listed.length > 0 ? "What is wrong" : "State",
    verdict,
    listed.length > 0 && problems(listed),
    el("p.note", {}, process, process && ". ", reads),
  );
}

/**
 * Shows what `portolan check` finds in objects. Notes are counted only.
 *
 * @param {any} found the findings
 */
function faults(found) {
  const missing = list(found.notRead);
  if (found.checked === false) return el("p.empty", {}, unread(found, "Service") || "Nothing is checked.");
  const notes = found.counts?.note ?? 0;
  const all = (found.counts?.error ?? 0) + (found.counts?.warning ?? 0);
  const listed = list(found.items).filter((f) => f.severity !== "note");
  const rest = [
    all > listed.length && `${number(all - listed.length)} more are not listed.`,
    notes > 0 && `There are ${count(notes, "note")} besides.`,
    all + notes > 0 && "portolan check prints all.",
  ];
  const none =
    missing.length > 0
      ? el("p.lead", {}, "portolan check finds no faults in what is read.")
      : el("p.lead.fine", {}, "portolan check finds no faults of objects.");
  return [
    all > 0 ? problems(ofFindings(listed)) : none,
    el("p.note", {}, rest.filter(Boolean).join(" ")),
    missing.length > 0 &&
      el("p.note", {}, `Not checked: ${join(missing.map((n) => n.kind))}. ${sentence(missing[0].why)}`),
  ];
}

/** @param {any} o */
function parts(o) {
  return list(o.process?.parts).flatMap((p) => [
    ...(p.ready === false
      ? [
          {
            meaning: "bad",
            where: `part ${p.name}`,
            what: `It is not ready: ${join(list(p.missing)) || "it does not say why"}.`,
          },
        ]
      : []),
    ...list(p.remarks).map((r) => ({ meaning: "doubtful", where: `part ${p.name}`, what: r })),
  ]);
}

/** @param {any} o */
function sources(o) {
  return list(o.sources).flatMap((s) => {
    const where = `source ${s.kind}`;
    if (s.state === "loading") return [{ meaning: "doubtful", where, what: `${s.kind} objects are still being read.` }];
    if (s.state === "absent" && s.why) {
      const cure = "see whether the account may list and watch them, and whether the API server can be reached";
      return [{ meaning: "doubtful", where, what: `${s.kind} objects are not read: ${s.why}.`, cure }];
    }
    if (s.state !== "stale") return [];
    const why = s.why ? `: ${s.why}` : "";
    return [
      {
        meaning: "bad",
        where,
        what: `${s.kind} objects are stale: nothing was heard of them for ${duration(s.stalenessSeconds)}${why}.`,
        cure: "see whether the API server can be reached from this process, and whether its permissions still hold",
      },
    ];
  });
}

/** @param {any} o */
function upstreams(o) {
  return list(o.upstreams)
    .filter((u) => u.up === false)
    .map((u) => ({
      meaning: "bad",
      where: `upstream ${u.address}`,
      what: `It does not answer queries for ${u.route || "."}; ${count(u.failures ?? 0, "failure")} so far.`,
      cure: "see whether the address is right (dns.forward), and whether a firewall lets UDP and TCP port 53 pass",
    }));
}

/** @param {any} o */
function agents(o) {
  return list(o.agents)
    .filter((a) => a.ready === false && !a.unknown)
    .map((a) => ({
      meaning: "bad",
      where: `node ${a.node}`,
      what: "It is not ready: its Pods are out of Services, and nothing new starts on it.",
      cure: `see why: kubectl describe node ${a.node}`,
    }));
}

/** @param {any} o */
function tables(o) {
  const counts = Object.entries(o.counts ?? {}).filter(([, n]) => typeof n === "number");
  return [
    section(
      "In the cluster",
      counts.length > 0
        ? el(
            "dl.counts",
            {},
            counts.map(([name, n]) => el("div", {}, el("dt", {}, counted(name)), el("dd", {}, number(n)))),
          )
        : el("p.empty", {}, "Nothing has been counted."),
    ),
    section(
      "Sources",
      table({
        caption: "Kinds of objects and how fresh they are",
        rows: freshness(o.sources).filter((s) => !none(s)),
        empty: "This process reads no objects.",
        columns: [
          { head: "Kind", cell: (s) => s.kind },
          { head: "State", cell: (s) => state(s.state) },
          { head: "Objects", numeric: true, cell: (s) => number(s.objects) },
          { head: "Last heard of", numeric: true, cell: heard },
        ],
      }),
      without(o.sources),
    ),
    section(
      "Upstreams",
      table({
        caption: "Servers that queries for other names are forwarded to",
        rows: o.upstreams,
        empty: "No queries are forwarded by this process.",
        columns: [
          { head: "Address", cell: (u) => el("span.name", {}, u.address) },
          { head: "For", cell: (u) => el("span.name", {}, u.route || ".") },
          { head: "State", cell: (u) => state(u.up === false ? "down" : "up") },
          { head: "Latency", numeric: true, cell: (u) => duration(u.latencySeconds) },
          { head: "Failures", numeric: true, cell: (u) => number(u.failures) },
        ],
      }),
    ),
    section("Nodes", agentTable(o)),
    section(
      "Parts of this process",
      table({
        caption: "Parts and whether they are ready",
        rows: o.process?.parts,
        empty: "This process has no parts.",
        columns: [
          { head: "Part", cell: (p) => p.name },
          { head: "State", cell: (p) => state(p.ready === false ? "not ready" : "ready") },
          { head: "Says", cell: (p) => [...list(p.missing), ...list(p.remarks)].join("; ") },
        ],
      }),
    ),
  ];
}

/**
 * Sorts sources: those that are not current first, and kinds without objects last.
 *
 * @param {any} sources
 */
function freshness(sources) {
  const late = (/** @type {any} */ s) => ["stale", "loading"].includes(s.state) || (s.state === "absent" && s.why);
  const rank = (/** @type {any} */ s) => (late(s) ? 0 : s.objects > 0 ? 1 : 2);
  return list(sources).toSorted((a, b) => rank(a) - rank(b) || String(a.kind).localeCompare(b.kind));
}

/**
 * Returns how long ago something was heard of a kind.
 *
 * @param {any} s
 */
function heard(s) {
  if (s.state === "absent") return "–";
  return s.stalenessSeconds >= 0.001 ? duration(s.stalenessSeconds) : "now";
}

/**
 * Reports whether a kind is read, and has no objects.
 *
 * @param {any} s
 */
function none(s) {
  return s.state === "current" && s.objects === 0;
}

/**
 * Says which kinds have no objects.
 *
 * @param {any} sources
 */
function without(sources) {
  const kinds = freshness(sources).filter(none).map((s) => s.kind);
  return kinds.length > 0 && el("p.note", {}, `Read, and without objects: ${kinds.join(", ")}.`);
}

/** @param {any} o */
function agentTable(o) {
  return table({
    caption: "Nodes and what is known of them",
    rows: o.agents,
    empty: "No Nodes are known.",
    columns: [
      { head: "Node", cell: (a) => el("span.name", {}, a.node) },
      { head: "State", cell: (a) => state(a.ready ? "ready" : a.unknown ? "not known" : "not ready") },
      { head: "Addresses", cell: (a) => el("span.name", {}, list(a.addresses).join(", ")) },
      { head: "Zone", cell: (a) => a.zone },
      { head: "Pods", numeric: true, cell: (a) => number(a.pods) },
    ],
  });
}

/**
 * Returns the name of a count in words: networkPolicies are network policies, and httpRoutes HTTP routes.
 *
 * @param {string} name
 */
function counted(name) {
  const words = name.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);
  return words.replace(/^(?:http|grpc|tls|tcp|udp)\b|^./, (first) => first.toUpperCase());
}
