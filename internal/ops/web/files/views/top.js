// What fails most, by subject, client or route.

import { get } from "../api.js";
import { el } from "../dom.js";
import { kinds, reasons, topTable } from "../events.js";
import { awaited } from "../parts.js";
import { clock } from "../text.js";
import { filterForm } from "./filter.js";

export const title = () => "Top failures";

const by = { subject: "what was asked for", client: "client", route: "route" };

/** @param {import("../main.js").Context} context */
export async function show({ main, params, signal }) {
  const chosen = {
    kind: params.get("kind") ?? "",
    reason: params.get("reason") ?? "",
    by: params.get("by") || "subject",
  };
  const result = el("div");
  main.append(
    filterForm("top", [
      { name: "by", label: "Grouped by", value: chosen.by, options: Object.entries(by) },
      {
        name: "kind",
        label: "Kind",
        value: chosen.kind,
        options: [["", "all"], ...kinds.map((k) => /** @type {[string, string]} */ ([k, k]))],
      },
      { name: "reason", label: "Reason", value: chosen.reason, suggestions: reasons },
    ]),
    result,
  );
  await awaited(
    result,
    get("top", { ...chosen, limit: 100 }, signal),
    (top) => [
      top.since && el("p.note", {}, "Counted since ", el("time", { datetime: top.since }, clock(top.since)), "."),
      topTable(top, chosen.by),
    ],
    signal,
  );
}
