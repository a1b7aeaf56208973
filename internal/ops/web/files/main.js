// The frame of the page: shows the view of the address, and moves the focus to it.

import { Failure, login } from "./api.js";
import { el, replace } from "./dom.js";
import { parse } from "./route.js";
import { startSearch } from "./searchbox.js";
import { sentence } from "./text.js";

/**
 * @typedef {object} Context
 * @property {HTMLElement} main where the view goes
 * @property {string[]} args
 * @property {URLSearchParams} params
 * @property {AbortSignal} signal aborted when the reader leaves the view
 * @property {HTMLElement} heading the heading of the view, for one that knows a better title later
 */

/** @typedef {{title: (args: string[]) => string, show: (context: Context) => Promise<void>}} View */

/** @type {Record<string, () => Promise<View>>} */
const views = {
  "": () => import("./views/overview.js"),
  explain: () => import("./views/explain.js"),
  gateways: () => import("./views/gateways.js"),
  pod: () => import("./views/pod.js"),
  policy: () => import("./views/policy.js"),
  search: () => import("./views/search.js"),
  service: () => import("./views/service.js"),
  tail: () => import("./views/tail.js"),
  top: () => import("./views/top.js"),
};

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
let leave = new AbortController();
let first = true;

/** Shows the view of the address. */
async function navigate() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const route = parse(location.hash);
  mark(route.view);
  const load = Object.hasOwn(views, route.view) ? views[route.view] : undefined;
  const heading = el("h1", { tabindex: -1 });
  const content = el("div.view");
  replace(main, heading, content);
  main.setAttribute("aria-busy", "true");
  try {
    if (!load) throw new Failure(`There is no view "${route.view}".`, 404);
    const view = await load();
    if (signal.aborted) return;
    setTitle(heading, view.title(route.args));
    if (!first) heading.focus();
    first = false;
    await view.show({ main: content, args: route.args, params: route.params, signal, heading });
  } catch (err) {
    if (!signal.aborted) fail(heading, content, err);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

/**
 * @param {HTMLElement} heading
 * @param {string} title
 */
function setTitle(heading, title) {
  replace(heading, title);
  document.title = `${heading.textContent} – Portolan`;
}

/**
 * Says in one sentence why a view cannot be shown, and what can be done.
 *
 * @param {HTMLElement} heading
 * @param {HTMLElement} content
 * @param {unknown} err
 */
function fail(heading, content, err) {
  if (!heading.textContent) setTitle(heading, "Not found");
  const status = err instanceof Failure ? err.status : -1;
  if (status < 0) console.error(err); // of this page, not of the server
  const cure =
    status === 401 ? tokenForm() : el("p", {}, el("button", { type: "button", click: navigate }, "Try again"));
  replace(content, el("div.problem", { role: "alert" }, el("p", {}, sentence(err))), cure);
}

/** Returns a form for the token of the server. */
function tokenForm() {
  const input = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const said = el("p.hint", { role: "status" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await login(/** @type {HTMLInputElement} */ (input).value.trim());
      navigate();
    } catch (err) {
      replace(said, sentence(err));
    }
  };
  return el(
    "form.fields",
    { submit },
    el(
      "div.field",
      {},
      el("label", { for: "token" }, "Token"),
      input,
      el(
        "p.hint",
        {},
        "The content of the file that admin.tokenFile names. The browser keeps a cookie for it, for 12 hours at most.",
      ),
    ),
    said,
    el("p", {}, el("button.primary", { type: "submit" }, "Use this token")),
  );
}

/**
 * Marks the link of the current view.
 *
 * @param {string} view
 */
function mark(view) {
  for (const a of document.querySelectorAll("#views a")) {
    if (parse(a.getAttribute("href") ?? "").view === view) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
}

document.getElementById("skip")?.addEventListener("click", (event) => {
  event.preventDefault(); // the address is that of the view
  main.focus();
});
startSearch();
window.addEventListener("hashchange", navigate);
navigate();
