/**
 * The playground of schedules: a page that computes, draws and compares two schedules.
 *
 * @module
 */

import { shortNumber } from "../../../schedules/pictures/grid.ts";
import {
  byId,
  element,
  fill,
  openThemes,
  setText,
  swatch,
  tableParts,
} from "../../dashboard/page/elements.js";
import { KINDS } from "../../dashboard/page/timeline.js";
import { CAUSES, type Picture } from "./play.ts";
import { numberControl, openPanel, summaryOf } from "./panel.ts";
import { formatLink, readLink, type Settings, SHARED, START } from "./settings.ts";

/** Delay after the last change, after which it is announced and kept in the link. */
const CALM_MS = 400;

/** Both sides are drawn together unless one takes longer. */
const TOGETHER_MS = 120;

const LINK = () => location.hash.slice(1);

function readHash(): Settings {
  try {
    return readLink(LINK());
  } catch {
    return readLink(START);
  }
}

let settings = readHash(), changedAt = performance.now();
const view = { isCritical: true, isSameScale: true, isByStage: false };
const panels: ReturnType<typeof openPanel>[] = [];

/** The pictures that are shown. */
const pictures = () => panels.map((panel) => panel.picture());

const isPressed = (id: string, is: boolean) => byId(id).setAttribute("aria-pressed", String(is));

let calm: ReturnType<typeof setTimeout> | undefined;

/** Keeps the state in the link, and announces the measures, when nothing has changed for a while. */
function calmDown(): void {
  clearTimeout(calm);
  calm = setTimeout(() => {
    if (formatLink(settings) !== LINK()) history.replaceState(null, "", `#${formatLink(settings)}`);
    setText(
      byId("status"),
      pictures().flatMap((one, i) => one ? [`${"AB"[i]}, ${one.name}: ${summaryOf(one)}`] : [])
        .join(" "),
    );
  }, CALM_MS);
}

/** Draws all panels again, and the table. */
function redraw(since?: number): void {
  const drawn = panels.map((panel) => new Promise<number>((done) => panel.draw(done)));
  if (since !== undefined) {
    void Promise.all(drawn).then((ends) =>
      performance.measure("redraw", { start: since, end: Math.max(...ends) })
    );
  }
  fill(byId("measures"), measuresOf(pictures()));
}

/** Takes new settings and computes the sides that they change. */
function change(to: Settings, rebuilt: readonly number[] = []): void {
  const before = settings;
  settings = to;
  changedAt = performance.now();
  while (panels.length > to.sides.length) panels.pop()?.element.remove();
  for (let index = panels.length; index < to.sides.length; index++) panels.push(addPanel(index));
  for (const [index, panel] of panels.entries()) {
    const side = to.sides[index]!, old = before.sides[index];
    if (!old || rebuilt.includes(index)) panel.rebuild();
    if (side !== old || to.shared !== before.shared || rebuilt.includes(index)) panel.update();
  }
  isPressed("second", to.sides.length > 1);
  redraw();
  calmDown();
}

function addPanel(index: number) {
  return openPanel(index, {
    settings: () => settings,
    change(side, isOfControl) {
      const sides = settings.sides.with(index, side);
      change({ ...settings, sides }, isOfControl ? [] : [index]);
    },
    look: () => ({
      colors: view.isByStage ? "stage" : "kind",
      isCriticalShown: view.isCritical,
      end: endOf(index),
    }),
    shown() {
      const isSoon = performance.now() - changedAt < TOGETHER_MS;
      if (isSoon && panels.some((panel) => panel.isBusy())) return; // the other draws both
      redraw(changedAt);
      calmDown();
    },
  });
}

function endOf(index: number): number {
  const ends = pictures().map((one) => one?.makespan ?? 0);
  return view.isSameScale ? Math.max(...ends) : ends[index] ?? 0;
}

/** The rows of the table of measures. */
const MEASURES: readonly (readonly [
  name: string,
  of: (picture: Picture) => number,
  unit?: string,
])[] = [
  ["Makespan", ({ makespan }) => makespan],
  ["Bubbles", ({ bubbleRatio }) => 100 * bubbleRatio, " %"],
  ...CAUSES.map(([, meaning], cause) =>
    [`… ${meaning}`, ({ causes }: Picture) => 100 * causes[cause]!, " %"] as const
  ),
  ["Peak activations, fullest worker", ({ rows }) => Math.max(...rows.map(({ peak }) => peak))],
  ["Peak activations, emptiest worker", ({ rows }) => Math.min(...rows.map(({ peak }) => peak))],
  ["Weights of a worker, in 1/D of the model", ({ weights }) => weights],
  ["Messages between workers", ({ messages }) => messages],
];

/** Differences that are errors of sums. */
const EQUAL = 1e-9;

function measuresOf(pictures: readonly (Picture | undefined)[]): HTMLElement[] {
  const heads = pictures.map((one, i) =>
    element("th", { scope: "col" }, `${"AB"[i]}: ${one?.name ?? "none"}`)
  );
  const rows = MEASURES.map(([name, of, unit = ""]) => {
    const values = pictures.map((one) => one && of(one));
    const least = Math.min(...values.map((value) => value ?? Infinity));
    const isDifferent = values.some((value) => value !== undefined && value - least > EQUAL);
    const cells = values.map((value) =>
      element(
        "td",
        { class: isDifferent && value !== undefined && value - least <= EQUAL && "better" },
        value === undefined ? "–" : `${unit ? value.toFixed(1) : shortNumber(value)}${unit}`,
      )
    );
    return element("tr", {}, element("th", { scope: "row" }, name), ...cells);
  });
  return tableParts([element("td", {}, ""), ...heads], rows);
}

function showLegend(): void {
  fill(byId("legend"), [
    ...Object.entries(KINDS).map(([kind, name]) =>
      swatch(`${kind} ${name}`, `var(--kind-${kind})`)
    ),
    ...CAUSES.map(([name, meaning]) =>
      swatch(`bubble: ${meaning}`, `var(--cause-${name})`, "bubble")
    ),
    swatch("critical path", "var(--bad)"),
  ]);
}

function showShared(): void {
  const place = byId("shared");
  place.replaceChildren(
    ...Object.entries(SHARED).map(([name, field]) =>
      numberControl(name, field, settings.shared[name as keyof typeof SHARED], (value) => {
        change({ ...settings, shared: { ...settings.shared, [name]: value! } });
      })
    ),
  );
}

/** Shows the state of a link. */
function restart(to: Settings): void {
  settings = { ...to, sides: [] };
  for (const panel of panels.splice(0)) panel.element.remove();
  change(to);
  showShared();
}

function toggle(id: string, act: () => boolean): void {
  byId(id).addEventListener("click", () => {
    isPressed(id, act());
    redraw();
  });
}

toggle("critical", () => view.isCritical = !view.isCritical);
toggle("scale", () => view.isSameScale = !view.isSameScale);
toggle("colors", () => view.isByStage = !view.isByStage);
byId("second").addEventListener("click", () => {
  const [first, second] = settings.sides as [Settings["sides"][number], Settings["sides"][number]?];
  change({ ...settings, sides: second ? [first] : [first, readLink(START).sides[1]!] });
});
byId("reset").addEventListener("click", () => restart(readLink(START)));
addEventListener("hashchange", () => {
  if (document.getElementById(LINK())) calmDown(); // a jump within the page
  else if (LINK() !== formatLink(settings)) restart(readHash());
});

// A file that misses a panel must not replace the page.
for (const type of ["dragover", "drop"] as const) {
  addEventListener(type, (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  });
}

openThemes(() => panels.forEach((panel) => panel.restyle()));
showLegend();
restart(settings);
