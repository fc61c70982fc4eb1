/**
 * The table of what papers state, as text.
 *
 * @module
 */

import type { MachineFact } from "../../actors/foresight/papers/machines/machines.ts";
import type { ModelRow } from "../../actors/foresight/papers/models_table.ts";
import { isMiss, type PaperRow } from "../../actors/foresight/papers/rows/paper_row.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";

const PAPERS = { chimera: "Chimera", hanayo: "Hanayo", axonn: "AxoNN" } as const;

/** What the words of the last columns mean. */
const HOW = [
  "formula: counted or executed, no machine in it; simulated: on a machine built from what the paper",
  "states; fitted: a constant was set by this figure, so that it predicts nothing; * a miss: another",
  "choice, or off by more than 10 %. Numbers in brackets: why, below.",
];

/** The rows of all papers, a table for each, with the reasons below. */
export function describePapers(rows: readonly PaperRow[]): string[] {
  const reasons = [...new Set(rows.map(({ reason }) => reason).filter((one) => one !== ""))];
  const tables = Object.entries(PAPERS).flatMap(([paper, title]) => {
    const cells = rows.filter((row) => row.paper === paper).map((row) => cellsOf(row, reasons));
    const head = ["section", "claim", "stated", "here", "off by", "", "how", "why"];
    return [title, ...formatTable([head, ...cells], { left: [0, 1, 5, 6, 7] }), ""];
  });
  const covered = rows.filter(({ by }) => by === "formula" || by === "simulated");
  const misses = covered.filter(isMiss).length;
  return [
    ...tables,
    ...HOW,
    "",
    ...reasons.map((reason, i) => `[${i + 1}] ${reason}`),
    "",
    `${rows.length} figures: ${covered.length} computed, of which ${misses} miss by more than 10 %; ` +
    `${count(rows, "fitted")} fitted; ${count(rows, "not covered")} not covered`,
  ];
}

const count = (rows: readonly PaperRow[], by: PaperRow["by"]) =>
  rows.filter((row) => row.by === by).length;

function cellsOf(row: PaperRow, reasons: readonly string[]): string[] {
  const { where, claim, unit, stated, predicted, by, difference, reason } = row;
  return [
    where,
    claim,
    figure(stated, unit),
    predicted === undefined ? "" : figure(predicted, unit),
    difference === undefined ? "" : percent(difference),
    isMiss(row) ? "*" : "",
    by,
    reason === "" ? "" : `[${reasons.indexOf(reason) + 1}]`,
  ];
}

function figure(value: number | string, unit: string): string {
  const text = typeof value === "string" ? value : String(Number(value.toPrecision(4)));
  const exact = typeof value === "number" && Number.isInteger(value) ? String(value) : text;
  return unit === "" ? exact : `${exact} ${unit}`;
}

const percent = (ratio: number) =>
  `${ratio < 0 ? "-" : "+"}${(100 * Math.abs(ratio)).toFixed(1)} %`;

/** What is known of the machines, and how. */
export function describeFacts(facts: readonly MachineFact[]): string[] {
  const cells = facts.map((
    { machine, field, value, by, source },
  ) => [machine, field, value, by, source]);
  return [
    "Machines: each figure and where it comes from",
    ...formatTable([["machine", "figure", "value", "how", "source"], ...cells], {
      left: [0, 1, 2, 3, 4],
    }),
  ];
}

/** The analytic models beside the simulator. */
export function describeModels(rows: readonly ModelRow[]): string[] {
  const cells = rows.map(({ model, configuration, unit, analytic, simulated, difference }) => [
    model,
    configuration,
    figure(analytic, unit),
    figure(simulated, unit),
    percent(difference),
  ]);
  return [
    "Analytic models beside the simulator",
    ...formatTable([["model", "configuration", "analytic", "simulated", "off by"], ...cells], {
      left: [0, 1],
    }),
  ];
}
