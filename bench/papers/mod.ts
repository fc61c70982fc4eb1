/**
 * Prints the figures of the papers on Chimera, Hanayo and AxoNN beside the predictions for their
 * machines, the analytic models beside the simulator, and the source of every figure of a machine:
 *
 *     deno task bench papers
 *
 * It takes about ten seconds.
 *
 * @module
 */

import { formatTable } from "../../schedules/pictures/grid.ts";
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
  /** See `LEGEND`. */
  readonly by: "formula" | "simulated" | "fitted" | "not covered";
  /** The call that predicts it; see `predict`. */
  readonly here?: unknown;
  /** The reason of a difference, or of a missing prediction. */
  readonly reason?: string;
  readonly predicted?: Value;
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

const LEGEND = [
  "formula: counted or executed, no machine in it; simulated: on a machine built from what the paper",
  "states; fitted: a constant was set by this figure, so that it predicts nothing; * a miss: another",
  "choice, or off by more than 10 %. Numbers in brackets: why, below.",
];

/** Predicts a figure. */
export function predicted(figure: Figure): Figure {
  const { here, stated, reason } = figure;
  const found = predict(here) as Value | Noted | undefined;
  const { value = undefined, note = undefined } = typeof found === "object"
    ? found
    : { value: found };
  const isFigure = typeof stated === "number" && typeof value === "number";
  return {
    ...figure,
    ...(value !== undefined && { predicted: value }),
    ...(isFigure && { difference: value / stated - 1 }),
    reason: [reason, note].filter(Boolean).join("; "),
  };
}

/** Returns true if a prediction is another choice, or a number that is off by more than a tenth. */
export function isMiss({ by, stated, predicted, difference }: Figure): boolean {
  if (by === "not covered" || by === "fitted") return false;
  return difference === undefined ? stated !== predicted : Math.abs(difference) > 0.1;
}

/** Returns a table for each paper with the reasons below. */
function describeRows(rows: readonly Figure[]): string[] {
  const reasons = [...new Set(rows.flatMap(({ reason }) => reason || []))];
  const cellsOf = (row: Figure) => [
    row.where,
    row.claim,
    figureText(row.stated, row.unit),
    row.predicted === undefined ? "" : figureText(row.predicted, row.unit),
    row.difference === undefined ? "" : percent(row.difference),
    isMiss(row) ? "*" : "",
    row.by,
    row.reason ? `[${reasons.indexOf(row.reason) + 1}]` : "",
  ];
  const head = ["section", "claim", "stated", "here", "off by", "", "how", "why"];
  const titles = { chimera: "Chimera", hanayo: "Hanayo", axonn: "AxoNN" };
  const tables = Object.entries(titles).flatMap(([paper, title]) => {
    const cells = rows.filter((row) => row.paper === paper).map(cellsOf);
    return [title, ...formatTable([head, ...cells], { left: [0, 1, 5, 6, 7] }), ""];
  });
  const count = (by: Figure["by"]) => rows.filter((row) => row.by === by).length;
  return [
    ...tables,
    ...LEGEND,
    "",
    ...reasons.map((reason, i) => `[${i + 1}] ${reason}`),
    "",
    `${rows.length} figures: ${count("formula") + count("simulated")} computed, of which ` +
    `${rows.filter(isMiss).length} miss by more than 10 %; ${count("fitted")} fitted; ` +
    `${count("not covered")} not covered`,
  ];
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
  return [
    "Analytic models beside the simulator",
    ...formatTable([head, ...cells], { left: [0, 1] }),
  ];
}

function describeFacts(): string[] {
  const cells = Object.values(FACTS).flatMap(({ name, facts }) =>
    Object.entries(facts).map(([field, { value, by, source }]) => {
      const text = typeof value === "object" ? JSON.stringify(value) : String(value);
      return [name, field, text, by, source];
    })
  );
  const head = ["machine", "figure", "value", "how", "source"];
  return [
    "Machines: each figure and where it comes from",
    ...formatTable([head, ...cells], { left: [0, 1, 2, 3, 4] }),
  ];
}

/** Returns the tables of all figures, of the models and of the machines. */
export function papersText(): string {
  const parts = [describeRows(FIGURES.map(predicted)), describeModels(), describeFacts()];
  return parts.map((lines) => lines.join("\n")).join("\n\n");
}
