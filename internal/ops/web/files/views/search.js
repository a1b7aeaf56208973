// What is found for a text.

import { get } from "../api.js";
import { el, link, replace } from "../dom.js";
import { lacks, table } from "../parts.js";
import { address, explainable } from "../searchbox.js";
import { list } from "../text.js";

export const title = () => "Search";

/** @param {import("../main.js").Context} context */
export async function show({ main, params, signal, heading }) {
  const q = params.get("q") ?? "";
  replace(heading, "Search for ", el("span.name", {}, q));
  document.title = "Search – Portolan";
  if (!q) {
    main.append(el("p", {}, "Type a name, an address or a part of one into the box above."));
    return;
  }
  const found = await get("search", { q, limit: 100 }, signal);
  main.append(
    table({
      caption: "What was found",
      rows: found.items,
      empty: "Nothing has this name or address. Names may be given in part: web, web.shop, 10.96.",
      columns: [
        { head: "Name", cell: (i) => link(i.href ?? "", i.title || i.name) },
        { head: "Kind", cell: (i) => i.kind },
        { head: "Details", cell: (i) => i.detail },
      ],
    }),
  );
  const [offer] = explainable(q, list(found.items));
  if (offer) {
    const name = el("span.name", {}, q);
    main.append(el("p", {}, link(address(offer), "Explain ", name), ", if a client cannot reach it."));
  }
  if (found.more) main.append(el("p.note", {}, "There are more: type more of the name to see fewer."));
  main.append(lacks(found) ?? "");
}
