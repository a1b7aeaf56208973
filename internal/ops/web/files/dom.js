// One way to make elements. Text is always set as text: nothing that comes from the server is parsed as HTML, and no
// element gets a style attribute, which the Content-Security-Policy refuses.

import { visible } from "./text.js";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Makes an element.
 *
 * @param {string} tag "p", or with classes: "p.notice"
 * @param {Record<string, any>} [props] attributes; a function is a listener of the event with that name, false and
 *   undefined leave an attribute out, and true sets an empty one
 * @param {...(Child | Child[])} children strings become text, with invisible characters made visible
 * @returns {HTMLElement}
 */
export function el(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length > 0) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  fill(element, ...children);
  return element;
}

/**
 * Adds children to an element.
 *
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
}

/**
 * Replaces the children of an element.
 *
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function replace(element, ...children) {
  element.replaceChildren();
  fill(element, ...children);
}

/**
 * Makes a link within the page. An address that does not lead to a view of the page becomes plain text.
 *
 * @param {string} href
 * @param {...(Child | Child[])} children
 * @returns {Node}
 */
export function link(href, ...children) {
  if (typeof href !== "string" || !href.startsWith("#/")) return el("span", {}, ...children);
  return el("a", { href }, ...children);
}
