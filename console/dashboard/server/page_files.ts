/**
 * The files of the page: ours, and the charts of uPlot out of the package's cache. Nothing else is
 * served, whatever is asked for.
 *
 * @module
 */

import charts from "../page/charts.js" with { type: "text" };
import elements from "../page/elements.js" with { type: "text" };
import index from "../page/index.html" with { type: "text" };
import main from "../page/main.js" with { type: "text" };
import numbers from "../page/numbers.js" with { type: "text" };
import panels from "../page/panels.js" with { type: "text" };
import picture from "../page/picture.js" with { type: "text" };
import pipeline from "../page/pipeline.js" with { type: "text" };
import pointers from "../page/pointers.js" with { type: "text" };
import pointing from "../page/pointing.js" with { type: "text" };
import range from "../page/range.js" with { type: "text" };
import words from "../page/words.js" with { type: "text" };
import state from "../page/state.js" with { type: "text" };
import style from "../page/style.css" with { type: "text" };
import uplotStyle from "uplot/dist/uPlot.min.css" with { type: "text" };
import uplot from "uplot/dist/uPlot.iife.min.js" with { type: "text" };

const SCRIPTS = {
  "charts.js": charts,
  "elements.js": elements,
  "main.js": main,
  "numbers.js": numbers,
  "panels.js": panels,
  "picture.js": picture,
  "pipeline.js": pipeline,
  "pointers.js": pointers,
  "pointing.js": pointing,
  "range.js": range,
  "words.js": words,
  "state.js": state,
  "uplot.js": uplot,
};

const typed = (type: string, files: Readonly<Record<string, string>>) =>
  Object.entries(files).map(([name, text]) => [name, { type, text }] as const);

/** The files by name; the page itself has none. */
export const PAGE_FILES: ReadonlyMap<string, { readonly type: string; readonly text: string }> =
  new Map([
    ...typed("text/html; charset=utf-8", { "": index }),
    ...typed("text/css; charset=utf-8", { "style.css": style, "uplot.css": uplotStyle }),
    ...typed("text/javascript; charset=utf-8", SCRIPTS),
  ]);
