// Addresses of views: #/NAME/ARGUMENT…?PARAMETERS.

/**
 * @typedef {object} Route
 * @property {string} view
 * @property {string[]} args
 * @property {URLSearchParams} params
 */

/**
 * Reads the address of a view.
 *
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const [path, query = ""] = split(hash.replace(/^#\/?/, ""), "?");
  const [view = "", ...args] = path.split("/").map(decode);
  return { view, args, params: new URLSearchParams(query) };
}

/**
 * Writes the address of a view.
 *
 * @param {string} view
 * @param {string[]} args
 * @param {Record<string, string | string[] | undefined>} [params] those without a value are left out
 */
export function href(view, args, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const one of [value].flat()) if (one) query.append(key, one);
  }
  const path = [view, ...args].map(encodeURIComponent).join("/");
  return `#/${path}${query.size > 0 ? `?${query}` : ""}`;
}

/**
 * @param {string} text
 * @param {string} separator
 */
function split(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
