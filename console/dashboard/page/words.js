/**
 * The picture in words: what its colours mean, and all of it as lists.
 *
 * @module
 */

import { byId, element } from "./elements.js";
import { duration, whole } from "./numbers.js";

/** @import { RunFacts, TraceView } from "../state.ts" */
/** @import { State } from "./state.js" */

/** A list longer than this is cut. */
const WORDS_MAX = 500;

/**
 * A step as lists, a list for each worker.
 *
 * @param {TraceView} trace
 */
export function inWords({ workers }) {
  return workers.map(({ spans, gaps }, worker) => {
    const told = [
      ...spans.map(([name, from, to]) => ({ name, from, to, kind: "done" })),
      ...gaps.map(([from, to, name]) => ({ name: name || "nothing to do", from, to, kind: "gap" })),
    ].sort((a, b) => a.from - b.from);
    return element(
      "section",
      {},
      element("h3", {}, `worker ${worker}`),
      element(
        "ol",
        { "data-worker": worker },
        ...told.slice(0, WORDS_MAX).map(({ name, from, to, kind }) =>
          element(
            "li",
            { class: kind },
            element("span", { class: "name" }, name),
            element("small", {}, ` ${duration(to - from)} from ${duration(from)}`),
          )
        ),
        ...told.length > WORDS_MAX
          ? [element("li", {}, `and ${whole(told.length - WORDS_MAX)} more`)]
          : [],
      ),
    );
  });
}

/** What the colours mean, said once. @param {State} state */
export function tellLegend({ run }) {
  if (!run) return;
  const legend = byId("legend"), kinds = new Set(Object.keys(run.inks).map((key) => key[0] ?? ""));
  if (legend.childElementCount > 0) return;
  const swatch = (/** @type {string} */ text, /** @type {string} */ name, color = "") => {
    const box = element("i", { class: name, "aria-hidden": "true" });
    if (color) box.style.background = color;
    return element("span", {}, box, text);
  };
  /** @type {Readonly<Record<string, string>>} */
  const words = { F: "forward", B: "backward", I: "for the input", W: "for the weights" };
  legend.append(
    ...Object.entries(words).filter(([kind]) => kinds.has(kind)).map(([kind, word]) =>
      swatch(`${kind} ${word}`, "ink", run.inks[`${kind}0.0`]?.[0])
    ),
    swatch("waiting", "gap"),
    swatch("all-reduce", "reduce"),
    swatch("optimizer", "optimizer"),
    ...stageSwatches(run, swatch),
  );
}

/** The stages' own colours, where there are not too many to name. @param {RunFacts} run @param {(text: string, name: string, color?: string) => HTMLElement} swatch */
function stageSwatches({ inks }, swatch) {
  const stages = Object.keys(inks).filter((key) => /^B\d+\.0$/.test(key));
  if (stages.length < 2 || stages.length > 8) return [];
  return stages.map((key, stage) => swatch(`stage ${stage}`, "ink", inks[key]?.[0]));
}
