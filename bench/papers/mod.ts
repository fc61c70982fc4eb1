/**
 * The figures of the papers on Chimera, Hanayo and AxoNN beside the predictions for their machines,
 * the analytic models beside the simulator, and the source of every figure of a machine, as the page
 * `docs/papers.md`:
 *
 *     deno task bench papers > docs/papers.md
 *
 * It takes about twenty seconds.
 *
 * @module
 */

import { markdownTable } from "../report.ts";
import figures from "./figures.json" with { type: "json" };
import models from "./models.json" with { type: "json" };
import { configurationOf, type Noted, predict, type Value } from "./predict.ts";
import { compareEquation1, FACTS } from "./simulate.ts";

/** A figure of a paper. */
interface Figure {
  readonly paper: "chimera" | "hanayo" | "axonn";
  /** Section, figure or table. */
  readonly where: string;
  readonly claim: string;
  readonly unit?: string;
  readonly stated: Value;
  /**
   * `formula`: counted or executed, no machine in it; `simulated`: on a machine built from what the
   * paper states; `fitted`: a constant was set by this figure, so that it predicts nothing.
   */
  readonly by: "formula" | "simulated" | "fitted" | "not covered";
  /** The call that predicts it; see `predict`. */
  readonly here?: unknown;
  /** The reason of a difference, or of a missing prediction. */
  readonly reason?: string;
  readonly predicted?: Value;
  /** The configurations that the prediction compares. */
  readonly note?: string;
  /** predicted ÷ stated - 1, of two numbers. */
  readonly difference?: number;
}

/** A formula of a paper beside the simulator. */
interface Comparison {
  readonly model: string;
  readonly configuration: string;
  readonly unit?: string;
  /** The call of the formula, or its value. */
  readonly analytic: unknown;
  /** The call of the simulation, or its value. */
  readonly simulated: unknown;
}

/** All figures of the papers. */
export const FIGURES = figures as unknown as readonly Figure[];

/** Predicts a figure. */
export function predicted(figure: Figure): Figure {
  const { here, stated } = figure;
  const found = predict(here) as Value | Noted | undefined;
  const { value = undefined, note = undefined } = typeof found === "object"
    ? found
    : { value: found };
  const isFigure = typeof stated === "number" && typeof value === "number";
  return {
    ...figure,
    ...(value !== undefined && { predicted: value }),
    ...(isFigure && { difference: value / stated - 1 }),
    ...note && { note },
  };
}

/** Returns true if a prediction is another choice, or a number that is off by more than a tenth. */
export function isMiss({ by, stated, predicted, difference }: Figure): boolean {
  if (by === "not covered" || by === "fitted") return false;
  return difference === undefined ? stated !== predicted : Math.abs(difference) > 0.1;
}

/** Returns the error of a figure, and why it is missed, fitted or not covered. */
function outcomeOf(row: Figure): string {
  const { by, difference, reason, note } = row;
  const off = difference === undefined ? [] : [percent(difference)];
  const isMet = (by === "simulated" || by === "formula") && !isMiss(row);
  if (isMet) return [...off, note ?? []].flat().join("; ");
  const what = [by === "fitted" || by === "not covered" ? by : "miss", ...off].join(" ");
  return [`${what}: ${reason}`, note ?? []].flat().join("; ");
}

/** Returns a table for each paper. */
function describeRows(rows: readonly Figure[]): string[] {
  const head = ["section", "claim", "printed", "ours", "from", "error or reason"];
  const titles = { chimera: "Chimera", hanayo: "Hanayo", axonn: "AxoNN" };
  return Object.entries(titles).flatMap(([paper, title]) => {
    const cells = rows.filter((row) => row.paper === paper).map((row) => [
      row.where,
      row.claim,
      figureText(row.stated, row.unit),
      row.predicted === undefined ? "" : figureText(row.predicted, row.unit),
      row.by === "formula" ? "formula" : row.predicted === undefined ? "" : "simulation",
      outcomeOf(row),
    ]);
    return [`## ${title}`, markdownTable([head, ...cells])];
  });
}

/** Returns the numbers of figures that are met. */
function describeCounts(rows: readonly Figure[]): string {
  const met = (by: Figure["by"]) => {
    const all = rows.filter((row) => row.by === by);
    return `${all.filter((row) => !isMiss(row)).length} of ${all.length}`;
  };
  const count = (by: Figure["by"]) => rows.filter((row) => row.by === by).length;
  const asRatio = (percent = 0) => 1 + percent / 100;
  const nearly = rows.filter((row) =>
    row.claim.includes("gain over") && isMiss(row) &&
    Math.abs(asRatio(Number(row.predicted)) / asRatio(Number(row.stated)) - 1) <= 0.1
  );
  return `Within 10 %, or the same choice: ${met("simulated")} simulated figures, and ${
    met("formula")
  } that formulas and schedules give without a machine. ${count("fitted")} more are fitted, ${
    count("not covered")
  } are not covered. Gains are compared in %, as printed; ${nearly.length} of the misses are within 10 % as ratios of throughput, as Chimera's paper prints them.`;
}

function figureText(value: Value, unit = ""): string {
  const isRounded = typeof value === "number" && !Number.isInteger(value);
  const text = isRounded ? String(Number(value.toPrecision(4))) : String(value);
  return unit === "" ? text : `${text} ${unit}`;
}

const percent = (ratio: number) =>
  `${ratio < 0 ? "-" : "+"}${(100 * Math.abs(ratio)).toFixed(1)} %`;

/** Returns a table of the papers' formulas beside the simulator. */
function describeModels(): string[] {
  const equation1 = ([["Bert-48", 32, 256], ["GPT-2", 512, 512]] as const).flatMap((
    [name, workers, batch],
  ) =>
    compareEquation1(name, workers, batch).map(({ plan, analyticMs, simulatedMs }): Comparison => ({
      model: "Chimera Eq. 1",
      configuration: `${name}, ${configurationOf(plan)}`,
      unit: "ms",
      analytic: analyticMs,
      simulated: simulatedMs,
    }))
  );
  const cells = [...equation1, ...models as Comparison[]].map(
    ({ model, configuration, ...one }) => {
      const analytic = predict(one.analytic) as number,
        simulated = predict(one.simulated) as number;
      const texts = [analytic, simulated].map((value) => figureText(value, one.unit));
      return [model, configuration, ...texts, percent(analytic / simulated - 1)];
    },
  );
  const head = ["model", "configuration", "analytic", "simulated", "off by"];
  return ["## Analytic models beside the simulator", markdownTable([head, ...cells])];
}

function describeFacts(): string[] {
  const cells = Object.values(FACTS).flatMap(({ name, facts }) =>
    Object.entries(facts).map(([field, { value, by, source }]) => {
      const text = typeof value === "object" ? JSON.stringify(value) : String(value);
      return [name, field, text, by, source];
    })
  );
  const head = ["machine", "figure", "value", "how", "source"];
  return ["## Machines", markdownTable([head, ...cells])];
}

/** Returns the page with all figures, the models and the machines. */
export function papersPage(): string {
  const rows = FIGURES.map(predicted);
  return [
    "<!-- deno-fmt-ignore-file -->\n\n# Figures of papers",
    `What the papers on Chimera, Hanayo and AxoNN print, and what this package predicts for their
machines. \`deno task bench papers > docs/papers.md\` writes this page from
[bench/papers/](../bench/papers/mod.ts).`,
    describeCounts(rows),
    `A miss is another choice, or off by more than 10 %. A fitted figure sets a constant of a machine,
so that it predicts nothing: the last table names every constant, and what it is fitted to. The
model itself (which messages overlap, how all-reduces slow above 64 copies, which figures set
constants) was chosen with all figures in view, so the counts say how well it describes these
papers, not how well it predicts others.`,
    ...describeRows(rows),
    ...describeModels(),
    ...describeFacts(),
  ].map((part) => part.trim()).join("\n\n");
}
