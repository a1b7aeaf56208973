// The command explain as a form: what is broken first, with its cure, then all layers in order.

import { get } from "../api.js";
import { el, replace } from "../dom.js";
import { copyButton, problems, section, state } from "../parts.js";
import { href } from "../route.js";
import { list, sentence } from "../text.js";
import { field } from "./filter.js";

export const title = () => "Explain";

/** What each layer is about, for who does not know the words. */
const layers = {
  name: ["Name", "how the client's resolver looks the name up"],
  service: ["Service", "who has the address, and which endpoints are used"],
  policy: ["Policy", "what network policies of both ends allow"],
  tls: ["TLS", "the certificate, and whether it is for the name"],
  route: ["Route", "the listener and the rule that take the request"],
  backend: ["Backend", "the Services behind the rule, and their endpoints"],
};

const names = ["target", "from", "to", "node", "method", "type", "libc"];
const offered = 12; // Pods that are offered as the client

/** @param {import("../main.js").Context} context */
export async function show({ main, params, signal }) {
  const given = Object.fromEntries(names.map((name) => [name, params.get(name) ?? ""]));
  const headers = params.getAll("header");
  const result = el("div");
  const spoken = el("p.hidden", { role: "status" });
  main.append(form(given, headers), spoken, result);
  if (!given.target) return;
  replace(result, el("p.empty", {}, "Explaining…"));
  try {
    const e = await get("explain", { ...given, header: headers }, signal);
    replace(result, explained(e, { ...given, headers }));
    replace(spoken, verdict(e));
  } catch (err) {
    if (signal.aborted) return;
    replace(result, el("div.problem", {}, el("p", {}, sentence(err))));
  }
}

/**
 * @param {Record<string, string>} given
 * @param {string[]} headers
 */
function form(given, headers) {
  const more = ["to", "node", "method", "type", "libc"].some((name) => given[name]) || headers.length > 0;
  const text = el("textarea", {
    id: "field-header",
    name: "header",
    rows: 2,
    spellcheck: "false",
    "aria-describedby": "field-header-hint",
  });
  /** @type {HTMLTextAreaElement} */ (text).value = headers.join("\n");
  const made = /** @type {HTMLFormElement} */ (
    el(
      "form.fields",
      {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          const data = new FormData(made);
          const to = href("explain", [], {
            ...Object.fromEntries(names.map((name) => [name, String(data.get(name) ?? "").trim()])),
            header: String(data.get("header") ?? "")
              .split("\n")
              .map((h) => h.trim())
              .filter(Boolean),
          });
          if (to === location.hash)
            window.dispatchEvent(new HashChangeEvent("hashchange")); // the same again
          else location.hash = to;
        },
      },
      el(
        "div.pair",
        {},
        field({
          name: "target",
          label: "What cannot be reached?",
          value: given.target,
          hint: "A name, a name or address with a port, or a URL: web.shop, web.shop:80, https://shop.example.com/cart",
        }),
        field({
          name: "from",
          label: "From where?",
          value: given.from,
          suggestions: places,
          hint: "A Pod as namespace/name, node, outside, or an address. Type part of a Pod's name to choose one.",
        }),
      ),
      el(
        "details",
        { open: more },
        el("summary", {}, "More"),
        el(
          "div.pair",
          {},
          field({
            name: "to",
            label: "At this address",
            value: given.to,
            hint: "For a URL: a node, or an address in place of what the name leads to",
          }),
          field({ name: "node", label: "On the node", value: given.node, hint: "For clients that are no Pods" }),
          field({
            name: "method",
            label: "Method of the request",
            value: given.method,
            suggestions: ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"],
          }),
          field({
            name: "type",
            label: "Type of the query",
            value: given.type,
            suggestions: ["A", "AAAA", "SRV", "PTR", "CNAME", "TXT", "MX", "HTTPS"],
          }),
          field({
            name: "libc",
            label: "Resolver of the client",
            value: given.libc,
            options: [
              ["", "glibc (most images)"],
              ["musl", "musl (Alpine)"],
              ["go", "Go"],
              ["windows", "Windows"],
            ],
          }),
          el(
            "div.field",
            {},
            el("label", { for: "field-header" }, "Headers of the request"),
            text,
            el("p.hint", { id: "field-header-hint" }, "One a line, as Name: value"),
          ),
        ),
      ),
      el("p", {}, el("button.primary", { type: "submit" }, "Explain")),
    )
  );
  made.querySelector("#field-target")?.setAttribute("required", "");
  made.querySelector("#field-from")?.addEventListener("input", () => offer(made));
  return made;
}

/** Clients that are no Pods. */
const places = ["node", "outside"];

let offering = new AbortController();

/**
 * Offers the Pods whose names have what the field of the client has.
 *
 * @param {HTMLFormElement} of
 */
async function offer(of) {
  const input = /** @type {HTMLInputElement} */ (of.querySelector("#field-from"));
  const choices = /** @type {HTMLElement} */ (of.querySelector("#field-from-list"));
  const q = input.value.trim();
  offering.abort();
  offering = new AbortController();
  const { signal } = offering;
  if (q === "") {
    replace(choices, choice(places));
    return;
  }
  try {
    const found = await get("search", { q, limit: 100 }, signal);
    const pods = list(found.items).filter((i) => i.kind === "Pod");
    replace(choices, choice([...places, ...pods.slice(0, offered).map((i) => `${i.namespace}/${i.name}`)]));
  } catch {
    // Without choices the field is as good as before.
  }
}

/** @param {string[]} values */
function choice(values) {
  return values.map((value) => el("option", { value }));
}

/**
 * Shows an explanation.
 *
 * @param {any} e
 * @param {any} given
 */
function explained(e, given) {
  const steps = list(e.layers);
  const wrong = steps.filter((s) => s.state === "broken");
  const unknown = steps.filter((s) => s.state === "not known" && list(s.diagnoses).length > 0);
  const cause = (wrong.length > 0 ? wrong : unknown).flatMap(diagnosed);
  const advice = steps
    .filter((s) => s.state === "ok" || (s.state === "not known" && wrong.length > 0))
    .flatMap(diagnosed)
    .map((p) => ({ ...p, meaning: /** @type {const} */ ("plain") }));
  const lead = e.state === "ok" ? "p.lead.fine" : e.state === "broken" ? "p.lead.wrong" : "p.lead.doubt";
  const command = commandLine(given);
  return [
    section(
      "Result",
      el(lead, {}, verdict(e)),
      el("p.note", {}, el("span.name", {}, e.target), e.from && [" from ", el("span.name", {}, e.from)]),
      cause.length > 0 && problems(cause),
    ),
    section("The way, layer by layer", way(steps)),
    advice.length > 0 && section(e.state === "ok" ? "It works, and could be better" : "Besides", problems(advice)),
    section(
      "As text",
      el("p.note", {}, "The same from the command line: ", el("code", {}, command)),
      e.text && [
        el(
          "details",
          {},
          el("summary", {}, "The whole explanation"),
          el("pre", { tabindex: 0, "aria-label": "The explanation as text" }, e.text),
        ),
        copyButton(e.text, "Copy the text"),
      ],
    ),
  ];
}

/** @param {any} e */
function verdict(e) {
  return `${e.state === "ok" ? "It works" : e.state === "broken" ? "It does not work" : "Not known"}: ${e.outcome}`;
}

/**
 * Returns the problems of a layer.
 *
 * @param {any} step
 * @returns {import("../parts.js").Problem[]}
 */
function diagnosed(step) {
  const elsewhere = "run the command with --live and without --admin"; // as the server says it
  const [title] = described(step.layer);
  const where = step.assumed ? `${title}, once what comes before it is mended` : title;
  const meaning = step.state === "broken" ? "bad" : "doubtful";
  const found = list(step.diagnoses).map((d) => ({
    where,
    what: d.why,
    cure: String(d.cure ?? "").replace(elsewhere, "run the command below with --live"),
    meaning: /** @type {"bad" | "doubtful"} */ (meaning),
  }));
  if (found.length > 0 || step.state !== "broken") return found;
  return [{ where, what: step.says, meaning: "bad" }];
}

/** @param {any[]} steps */
function way(steps) {
  const judged = steps.some((s) => s.assumed);
  return [
    el(
      "ol.way",
      {},
      steps.map((s) => {
        const [title, about] = described(s.layer);
        return el(
          "li",
          {},
          el(
            "div.layer",
            {},
            el("b", {}, title),
            " ",
            state(s.state),
            s.assumed && el("span.note", {}, "judged as if what comes before it were mended"),
          ),
          el("p", {}, s.says),
          about && el("p.note", {}, about),
          live(s),
        );
      }),
    ),
    judged && el("p.note", {}, "The first broken layer is the cause; those behind it show what would be next."),
  ];
}

/**
 * Shows what was seen when packets were sent, if they were.
 *
 * @param {any} s
 */
function live(s) {
  if (!s.live) return null;
  const seen = s.live.seen ?? s.live.says ?? "";
  return el(
    "p",
    {},
    state(s.live.agrees === false ? "differs" : "agrees", s.live.agrees === false ? "bad" : "good"),
    ` when tried: ${seen}`,
  );
}

/** @param {string} layer */
function described(layer) {
  return Object.hasOwn(layers, layer) ? layers[/** @type {keyof layers} */ (layer)] : [layer, ""];
}

/**
 * Returns the command that prints the same.
 *
 * @param {any} given
 */
function commandLine(given) {
  const quote = (/** @type {string} */ s) => (/^[\w./:@%+=,-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`);
  const flags = ["from", "to", "node", "method", "type", "libc"]
    .filter((f) => given[f])
    .map((f) => `--${f} ${quote(given[f])}`);
  const headers = given.headers.map((/** @type {string} */ h) => `--header ${quote(h)}`);
  return ["portolan explain", quote(given.target), ...flags, ...headers].join(" ");
}
