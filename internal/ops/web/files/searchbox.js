// The search box in the frame: a combobox with a list of what is found (WAI-ARIA Authoring Practices, combobox).

import { get } from "./api.js";
import { el, replace } from "./dom.js";
import { href } from "./route.js";
import { count, list, sentence } from "./text.js";

/**
 * @typedef {object} Item
 * @property {string} kind
 * @property {string} [namespace]
 * @property {string} [name]
 * @property {string} [title]
 * @property {string} [detail]
 * @property {string} [href]
 */

const delay = 120; // milliseconds without a key before the server is asked
const most = 12;

const input = /** @type {HTMLInputElement} */ (document.getElementById("search-text"));
const box = /** @type {HTMLElement} */ (document.getElementById("search-list"));
const status = /** @type {HTMLElement} */ (document.getElementById("search-status"));
const form = /** @type {HTMLFormElement} */ (document.getElementById("search"));

/** @type {Item[]} */
let items = [];
let chosen = -1;
let asking = new AbortController();

/** Listens to the keyboard and the box. */
export function startSearch() {
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, delay);
  });
  input.addEventListener("keydown", key);
  input.addEventListener("focus", () => input.value && items.length > 0 && open());
  form.addEventListener("focusout", (event) => {
    if (!form.contains(/** @type {Node | null} */ (event.relatedTarget))) close();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    if (chosen >= 0) go(items[chosen]);
    else if (input.value.trim()) leave(href("search", [], { q: input.value.trim() }));
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, select, textarea");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
    input.select();
  });
}

/** @param {KeyboardEvent} event */
function key(event) {
  if (event.key === "Escape" && !box.hidden) {
    event.preventDefault(); // which would clear the box
    close();
    return;
  }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  if (items.length === 0) return;
  if (box.hidden) open();
  const step = event.key === "ArrowDown" ? 1 : -1;
  choose((chosen + step + items.length + (chosen < 0 && step < 0 ? 1 : 0)) % items.length);
}

/** Asks the server for what the box has. */
async function ask() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const q = input.value.trim();
  if (!q) {
    show([], "");
    return;
  }
  try {
    const found = await get("search", { q, limit: most }, signal);
    const first = list(found.items).slice(0, most);
    show(
      [...first, ...explainable(q, first)],
      first.length === 0
        ? `Nothing is called ${q}`
        : `${count(first.length, "result")}${found.more ? ", and more" : ""}`,
    );
  } catch (err) {
    if (!signal.aborted) show([], sentence(err));
  }
}

/**
 * Returns an item that leads to an explanation of a text, if it can be a name, an address or a URL.
 *
 * @param {string} q
 * @param {Item[]} found what the server found, which may offer that by itself
 * @returns {Item[]}
 */
export function explainable(q, found) {
  if (q.length < 3 || /\s/.test(q) || found.some((i) => i.href?.startsWith("#/explain"))) return [];
  return [{ kind: "Explain", title: q, detail: "why it works or does not", href: href("explain", [], { target: q }) }];
}

/**
 * @param {Item[]} found
 * @param {string} says
 */
function show(found, says) {
  items = found;
  chosen = -1;
  input.removeAttribute("aria-activedescendant");
  const options = found.map((item, i) =>
    el(
      "li",
      {
        role: "option",
        id: `found-${i}`,
        "aria-selected": "false",
        mousedown: (/** @type {Event} */ e) => e.preventDefault(),
        click: () => go(item),
      },
      el("span.name", {}, item.title || item.name),
      " ",
      el("span.kind", {}, item.kind),
      item.detail && el("span.note", {}, item.detail),
    ),
  );
  replace(box, options);
  replace(status, says);
  status.classList.toggle("hidden", found.length > 0 || says === "");
  if (found.length > 0) open();
  else close();
}

/** @param {number} i */
function choose(i) {
  box.children[chosen]?.setAttribute("aria-selected", "false");
  chosen = i;
  const option = box.children[i];
  option.setAttribute("aria-selected", "true");
  option.scrollIntoView({ block: "nearest" });
  input.setAttribute("aria-activedescendant", option.id);
}

function open() {
  box.hidden = false;
  input.setAttribute("aria-expanded", "true");
}

function close() {
  box.hidden = true;
  chosen = -1;
  status.classList.add("hidden");
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
}

/** @param {Item} item */
function go(item) {
  leave(address(item));
}

/** @param {string} to */
function leave(to) {
  asking.abort();
  close();
  location.hash = to;
}

/**
 * Returns the address of what was found: the one that the server gives, if it leads to a view.
 *
 * @param {Item} item
 */
export function address(item) {
  if (typeof item.href === "string" && item.href.startsWith("#/")) return item.href;
  return href("search", [], { q: item.title || item.name || "" });
}
