// A form whose fields are the parameters of a view's address.

import { el } from "../dom.js";
import { href } from "../route.js";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {string} value
 * @property {[string, string][]} [options] values and what they are called; without them it is a text field
 * @property {string[]} [suggestions]
 * @property {string} [hint]
 */

/**
 * Makes a form that shows a view with the values of its fields.
 *
 * @param {string} view
 * @param {Field[]} fields
 */
export function filterForm(view, fields) {
  const form = /** @type {HTMLFormElement} */ (
    el(
      "form.filter",
      {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          go();
        },
        change: (/** @type {Event} */ event) => event.target instanceof HTMLSelectElement && go(),
      },
      fields.map(field),
      el("button", { type: "submit" }, "Show"),
    )
  );
  const go = () => {
    const data = new FormData(form);
    location.hash = href(
      view,
      [],
      Object.fromEntries(fields.map((f) => [f.name, String(data.get(f.name) ?? "").trim()])),
    );
  };
  return form;
}

/**
 * Makes a labelled field.
 *
 * @param {Field} f
 */
export function field(f) {
  const id = `field-${f.name}`;
  const control = f.options
    ? el(
        "select",
        { id, name: f.name },
        f.options.map(([value, text]) => el("option", { value, selected: value === f.value }, text)),
      )
    : el("input", {
        id,
        name: f.name,
        value: f.value,
        list: f.suggestions && `${id}-list`,
        autocomplete: "off",
        spellcheck: "false",
        maxlength: 2000,
        "aria-describedby": f.hint && `${id}-hint`,
      });
  return el(
    "div.field",
    {},
    el("label", { for: id }, f.label),
    control,
    f.suggestions &&
      el(
        "datalist",
        { id: `${id}-list` },
        f.suggestions.map((value) => el("option", { value })),
      ),
    f.hint && el("p.hint", { id: `${id}-hint` }, f.hint),
  );
}
