// A Pod: where it is, how it looks names up, and what policies say about it.

import { get } from "../api.js";
import { el, link } from "../dom.js";
import { facts, lacks, ofFindings, problems, section, state, table, unread } from "../parts.js";
import { href } from "../route.js";
import { list } from "../text.js";
import { failures, policies } from "./service.js";

/** @param {string[]} args */
export const title = (args) => `Pod ${args.slice(0, 2).join("/")}`;

/** @param {import("../main.js").Context} context */
export async function show({ main, args, signal }) {
  const [namespace = "", name = ""] = args;
  const p = await get(`pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, {}, signal);
  main.append(
    verdict(p),
    el(
      "p.actions",
      {},
      el("a.button", { href: href("explain", [], { from: `${namespace}/${name}` }) }, "Explain a connection from it"),
      link(href("tail", [], { client: `${namespace}/${name}` }), "Watch its events"),
    ),
    section(
      "Where it is",
      facts([
        ["Addresses", list(p.addresses).join(", ")],
        ["Node", p.node],
        ["State", readiness(p)],
      ]),
    ),
    lookup(p),
    services(p),
    policies(p, "in", "No policy selects it: it accepts connections from everywhere."),
    policies(p, "out", "No policy selects it: it may connect to everything."),
    failures(p),
    lacks(p) ?? "",
  );
}

/**
 * Shows whether a Pod is ready. That of a Pod which has finished is nothing to judge.
 *
 * @param {any} p
 */
function readiness(p) {
  if (p.finished) return state("finished");
  if (p.unknown) return state("not known");
  return typeof p.ready === "boolean" && state(p.ready ? "ready" : "not ready");
}

/** @param {any} p */
function verdict(p) {
  const found = ofFindings(p.findings);
  if (p.ready === false && !p.unknown && !p.finished) {
    const why = String(p.why ?? "").replace(/^[,\s]+/, "");
    found.unshift({
      meaning: "bad",
      where: "readiness",
      what: `It is not ready, and gets no connections of Services${why ? `: ${why}` : ""}.`,
      cure: `find out why: kubectl describe pod ${p.name} --namespace ${p.namespace}`,
    });
  }
  const fine = found.every((f) => f.meaning === "plain");
  return section(
    "What is wrong",
    fine && el("p.lead.fine", {}, "Nothing is known to be wrong with it."),
    found.length > 0 && problems(found),
  );
}

/** @param {any} p */
function lookup(p) {
  const r = p.resolvConf;
  if (!r?.text) return section("How it looks up names", el("p.empty", {}, "Its resolv.conf is not known."));
  const warnings = list(r.warnings).map((what) => ({ what, meaning: /** @type {const} */ ("doubtful") }));
  return section(
    "How it looks up names",
    warnings.length > 0 && problems(warnings),
    el("p.note", {}, `Its resolv.conf, by dnsPolicy ${r.policy}:`),
    el("pre", { tabindex: 0, role: "region", "aria-label": "resolv.conf" }, r.text),
  );
}

/** @param {any} p */
function services(p) {
  return section(
    "Services that select it",
    table({
      caption: "Services whose selector matches this Pod",
      rows: p.services,
      more: p.more?.services,
      empty: unread(p, "Service") || "No Service selects it.",
      columns: [
        { head: "Service", cell: (s) => link(href("service", [s.namespace, s.name]), `${s.namespace}/${s.name}`) },
      ],
    }),
  );
}
