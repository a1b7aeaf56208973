// A Service: what is wrong with it, then its names, addresses, endpoints, policies and routes.

import { get } from "../api.js";
import { el, link } from "../dom.js";
import { columns } from "../events.js";
import { lacks, ofFindings, problems, section, state, table, unread, worstFirst } from "../parts.js";
import { href } from "../route.js";
import { count, list, number } from "../text.js";

/** @typedef {import("../parts.js").Problem} Problem */

/** @param {string[]} args */
export const title = (args) => `Service ${args.slice(0, 2).join("/")}`;

/** @param {import("../main.js").Context} context */
export async function show({ main, args, signal }) {
  const [namespace = "", name = ""] = args;
  const s = await get(`services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, {}, signal);
  const nobody = s.podsJudged === 0 && "It has no running Pods whose policies could be shown.";
  const first = firstPods(s);
  const others =
    first && `No policy selects ${first} by name. The policies of the others are not known here.`;
  main.append(
    verdict(s),
    explain(s),
    names(s),
    addresses(s),
    endpoints(s),
    policies(s, "in", nobody || others || "No policy selects its Pods: they accept connections from everywhere."),
    policies(s, "out", nobody || others || "No policy selects its Pods: they may connect to everything."),
    routes(s),
    failures(s),
    lacks(s) ?? "",
  );
}

/** @param {any} s */
function verdict(s) {
  const findings = ofFindings(s.findings);
  const told = findings.some((p) => p.meaning !== "plain");
  const found = worstFirst([...(told ? [] : unused(s)), ...findings, ...brokenRoutes(s)]);
  const all = list(s.endpoints);
  const used = all.filter((e) => e.used).length;
  const fine = found.every((p) => p.meaning === "plain");
  return section(
    "What is wrong",
    fine && el("p.lead.fine", {}, "Nothing is known to be wrong with it."),
    fine && all.length > 0 && el("p.note", {}, `${used} of ${count(all.length, "endpoint")} used.`),
    found.length > 0 && problems(found),
  );
}

/**
 * Returns what is wrong with the endpoints.
 *
 * @param {any} s
 * @returns {Problem[]}
 */
function unused(s) {
  const where = "endpoints";
  const all = list(s.endpoints);
  const others = all.filter((e) => !e.used);
  if (s.type === "ExternalName" || unread(s, "EndpointSlice")) return [];
  if (all.length === 0) {
    const cure = "see whether its selector matches labels of Pods: kubectl get endpointslices shows what is selected";
    return [{ meaning: "bad", where, what: "It has no endpoints: nothing answers at its addresses.", cure }];
  }
  if (others.length === 0) return [];
  const why = others[0].why || "the table below says why";
  const pod = others[0].pod && `find out why: kubectl describe pod ${others[0].pod} --namespace ${s.namespace}`;
  const what = `${others.length} of ${count(all.length, "endpoint")} not used: ${why}`;
  return [{ meaning: others.length === all.length ? "bad" : "doubtful", where, what, cure: pod }];
}

/**
 * @param {any} s
 * @returns {Problem[]}
 */
function brokenRoutes(s) {
  return list(s.routes)
    .filter((r) => r.state === "broken")
    .map((r) => ({
      meaning: "bad",
      where: `${r.kind} ${r.namespace}/${r.name} · ${r.rule}`,
      what: r.why ?? "It is broken.",
    }));
}

/** @param {any} s */
function explain(s) {
  const port = list(s.addresses).flatMap((a) => list(a.ports))[0];
  const digits = String(port ?? "").match(/(\d+)\//)?.[1];
  const target = `${s.name}.${s.namespace}${digits ? `:${digits}` : ""}`;
  return el(
    "p.actions",
    {},
    el("a.button", { href: href("explain", [], { target }) }, "Explain a connection to it"),
    link(href("tail", [], { subject: `${s.name}.${s.namespace}` }), "Watch its events"),
  );
}

/** @param {any} s */
function names(s) {
  return section(
    "Names",
    table({
      caption: "Names of this Service in DNS",
      rows: s.names,
      more: s.more?.names,
      empty: "It has no name in DNS that resolves.",
      columns: [
        { head: "Name", cell: (n) => el("span.name", {}, n.name) },
        { head: "Type", cell: (n) => n.type },
        { head: "TTL", numeric: true, cell: (n) => n.ttl },
        { head: "Data", cell: (n) => data(list(n.data)) },
      ],
    }),
  );
}

/** @param {string[]} all */
function data(all) {
  const few = 8;
  const shown = all.slice(0, few).map((d) => el("li.name", {}, d));
  return [el("ul.plain", {}, shown), all.length > few && el("span.note", {}, `and ${all.length - few} more`)];
}

/** @param {any} s */
function addresses(s) {
  return section(
    "Addresses",
    table({
      caption: "Addresses at which it is reached",
      rows: s.addresses,
      empty: "It has no address of its own: its name leads to its endpoints.",
      columns: [
        { head: "Address", cell: (a) => el("span.name", {}, a.address === "node" ? "that of any node" : a.address) },
        { head: "Kind", cell: (a) => a.kind },
        { head: "Ports", cell: (a) => list(a.ports).join(", ") },
      ],
    }),
  );
}

/** @param {any} s */
function endpoints(s) {
  const sorted = list(s.endpoints).toSorted((a, b) => Number(a.used) - Number(b.used));
  return section(
    "Endpoints",
    table({
      caption: "Endpoints, those that are not used first",
      rows: sorted,
      more: s.more?.endpoints,
      empty: unread(s, "EndpointSlice") || "It has no endpoints.",
      columns: [
        { head: "Address", cell: (e) => el("span.name", {}, e.address) },
        { head: "State", cell: (e) => state(e.used ? "used" : "not used") },
        { head: "Why", cell: (e) => e.why },
        { head: "Ports", cell: (e) => list(e.ports).join(", ") },
        { head: "Pod", cell: (e) => (e.pod ? link(href("pod", [s.namespace, e.pod]), e.pod) : "") },
        { head: "Node", cell: (e) => e.node },
      ],
    }),
  );
}

/**
 * Returns which Pods of a Service were looked at for their policies; empty if all were.
 *
 * @param {any} s
 */
function firstPods(s) {
  const others = s.more?.podsJudged ?? 0;
  return others > 0 ? `the first ${number(s.podsJudged)} of its ${number(s.podsJudged + others)} Pods` : "";
}

/**
 * Lists policies, and says what decides on others and is not read.
 *
 * @param {any} data of a Service or a Pod
 * @param {"in" | "out"} direction
 * @param {string} empty
 */
export function policies(data, direction, empty) {
  const [rows, key, heading] =
    direction === "in"
      ? [data.policiesIn, "policiesIn", "Policies for incoming connections"]
      : [data.policiesOut, "policiesOut", "Policies for outgoing connections"];
  const missing = unread(data, "NetworkPolicy", "ClusterNetworkPolicy", "Namespace", "Pod");
  const first = firstPods(data);
  return section(
    heading,
    table({
      caption: heading,
      rows,
      more: data.more?.[key],
      empty: missing || empty,
      columns: [
        { head: "Policy", cell: (p) => link(p.href, [p.namespace, p.name].filter(Boolean).join("/")) },
        { head: "Kind", cell: (p) => p.kind },
        { head: "Effect", cell: (p) => p.effect },
      ],
    }),
    list(rows).length > 0 && [
      missing && el("p.note", {}, missing),
      first && el("p.note", {}, `These are the policies of ${first} by name.`),
    ],
  );
}

/** @param {any} s */
function routes(s) {
  const order = ["broken", "unknown", "ok", "other"];
  return section(
    "Routes",
    table({
      caption: "Routes and Ingresses that lead to it, those that are broken first",
      rows: list(s.routes).toSorted((a, b) => order.indexOf(a.state) - order.indexOf(b.state)),
      more: s.more?.routes,
      empty: unread(s, "HTTPRoute", "Ingress") || "No route and no Ingress leads to it.",
      columns: [
        { head: "Route", cell: (r) => el("span.name", {}, `${r.kind} ${r.namespace}/${r.name}`) },
        { head: "Rule", cell: (r) => el("span.name", {}, r.rule) },
        { head: "URL", cell: (r) => (r.url ? link(href("explain", [], { target: r.url }), r.url) : "") },
        { head: "State", cell: (r) => [r.state && state(r.state), r.why && el("span.note", {}, r.why)] },
      ],
    }),
  );
}

/**
 * Lists the last failures.
 *
 * @param {any} data of a Service or a Pod
 */
export function failures(data) {
  return section(
    "Last failures",
    table({
      caption: "Last failures, the newest first",
      rows: data.failures,
      empty: "This process has seen no failures of it.",
      columns,
    }),
  );
}
