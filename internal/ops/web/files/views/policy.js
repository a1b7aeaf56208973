// A policy: what is wrong with it, then its rules, and the Pods that it applies to.

import { get } from "../api.js";
import { el, link } from "../dom.js";
import { facts, lacks, ofFindings, problems, section, table, unread } from "../parts.js";
import { list, number } from "../text.js";

/** @param {string[]} args NAMESPACE and NAME of a NetworkPolicy, or the NAME of a ClusterNetworkPolicy */
export const title = (args) =>
  `${args.length > 1 ? "NetworkPolicy" : "ClusterNetworkPolicy"} ${args.slice(0, 2).join("/")}`;

/** @param {import("../main.js").Context} context */
export async function show({ main, args, signal }) {
  const p = await get(`policies/${args.slice(0, 2).map(encodeURIComponent).join("/")}`, {}, signal);
  main.append(
    verdict(p),
    section(
      "What it is for",
      facts([
        ["Pods", p.selects],
        ["Evaluated", p.tier && `in the tier ${p.tier}, with priority ${p.priority}: lower ones come first`],
        ["Audit mode", p.audit && "what it denies is logged only"],
      ]),
    ),
    rules(p, "in"),
    rules(p, "out"),
    pods(p),
    lacks(p) ?? "",
  );
}

/** @param {any} p */
function verdict(p) {
  const found = ofFindings(p.findings);
  const fine = found.every((f) => f.meaning === "plain");
  return section(
    "What is wrong",
    fine && el("p.lead.fine", {}, "Nothing is known to be wrong with it."),
    found.length > 0 && problems(found),
  );
}

/**
 * Lists the rules of a direction.
 *
 * @param {any} p
 * @param {"in" | "out"} direction
 */
function rules(p, direction) {
  const [rows, more, connections, peers] =
    direction === "in"
      ? [p.rulesIn, p.more?.rulesIn, "incoming connections", "From"]
      : [p.rulesOut, p.more?.rulesOut, "outgoing connections", "To"];
  const heading = `Rules for ${connections}`;
  return section(
    heading,
    table({
      caption: `${heading}, in order`,
      rows,
      more,
      empty: rows
        ? `It has no rules for them: its Pods have no ${connections} but those that other policies allow.`
        : `It says nothing about ${connections}.`,
      columns: [
        { head: "Rule", cell: (r) => el("span.name", {}, r.field) },
        { head: "Effect", cell: (r) => r.effect },
        { head: peers, cell: (r) => each(r.peers, r.more?.peers, p.tier ? "nothing" : "anywhere") },
        { head: "Ports", cell: (r) => each(r.ports, r.more?.ports, "all") },
      ],
    }),
  );
}

/**
 * @param {any} all
 * @param {number | undefined} more how many the server leaves out
 * @param {string} none
 */
function each(all, more, none) {
  const words = list(all);
  if (words.length === 0) return none;
  const rest = more ? el("span.note", {}, `and ${number(more)} more`) : "";
  return [el("ul.plain", {}, words.map((w) => el("li", {}, w))), rest];
}

/** @param {any} p */
function pods(p) {
  return section(
    "Pods that it applies to",
    table({
      caption: "Pods that it applies to",
      rows: p.pods,
      more: p.more?.pods,
      empty: unread(p, "Pod") || "It applies to no Pod that runs.",
      columns: [
        { head: "Pod", cell: (o) => link(o.href, `${o.namespace}/${o.name}`) },
        { head: "Node", cell: (o) => o.node },
      ],
    }),
  );
}
