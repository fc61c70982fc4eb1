/**
 * Distinct states of AxoNN's Algorithm 2.
 *
 * @module
 */

import { printError } from "../../console/print.ts";
import { countStates, MODELS, pipelineOf } from "../../tests/actors/simulation/count_states.ts";
import { markdownTable } from "../support/markdown_table.ts";

const STAGES = [2, 3, 4, 5] as const;

/** The table of states. */
export async function states(): Promise<string> {
  const sizes = STAGES.map((stages) => `${stages}×${2 * stages}, ${stages}`);
  const rows = [["Model", ...sizes, "runs of the last"]];
  for (const model of Object.values(MODELS)) {
    printError(`counting: ${model.name} …`);
    const counted = [];
    for (const stages of STAGES) counted.push(await countStates(model, pipelineOf(stages)));
    const counts = [...counted.map(({ states }) => states), counted.at(-1)!.runs];
    rows.push([model.name, ...counts.map((count) => count.toLocaleString("en"))]);
  }
  return `Distinct states, counted by \`dfs\`, for stages × micro-batches, limit.

${markdownTable(rows)}`;
}
