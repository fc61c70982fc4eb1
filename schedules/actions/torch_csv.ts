/** Action lists as PyTorch reads them: a row for each rank, computation only. */

import { type Action, formatAction, isPlain, parts } from "./action.ts";

/**
 * Writes action lists as CSV that PyTorch reads (`_load_csv` of its pipeline schedules): an overlap is
 * `(0F1;7B0)OVERLAP_F_B`. Sends, receives and collectives follow from it there as they do here.
 *
 * @throws {RangeError} at what PyTorch has no word for: a doubled forward, a half backward, a slice,
 * a recomputation, an overlap of anything but a forward and a whole backward; at a stage that is on
 * several workers, as pipes of both directions have them; and at a last stage that takes micro-batches
 * out of order, as PyTorch counts losses in the order in which they come.
 *
 * @example
 * ```ts
 * import { strictEqual, throws } from "node:assert/strict";
 * import { B, F, formatTorchCsv, overlap } from "@troupe/troupe/schedules";
 *
 * strictEqual(formatTorchCsv([[F(0, 0), overlap(F(0, 1), B(7, 0))]]), "0F0,(0F1;7B0)OVERLAP_F_B\n");
 * throws(() => formatTorchCsv([[F(0, 4, 5)]]), /received 0F4\+5/);
 * throws(() => formatTorchCsv([[F(0, 0)], [F(0, 1)]]), /received stage 0 on workers 0 and 1/);
 * ```
 */
export function formatTorchCsv(lists: Iterable<Iterable<Action>>): string {
  const rows = Array.from(lists, (list) => [...list]);
  const text = rows.map((row) => row.map(formatTorchAction).join(",") + "\n").join("");
  checkPlaces(rows);
  checkLosses(rows);
  return text;
}

function formatTorchAction(action: Action): string {
  if (isPlain(action)) return formatAction(action);
  const [first, second, ...more] = parts(action);
  const kinds = [first, second].map((part) => part?.kind).sort().join("");
  if (first && second && more.length === 0 && kinds === "BF" && [first, second].every(isPlain)) {
    return `(${formatAction(first)};${formatAction(second)})OVERLAP_F_B`;
  }
  throw refusal(
    "each action must be one of a whole micro-batch, or an overlap of a forward and a backward",
    formatAction(action),
  );
}

function checkPlaces(rows: readonly (readonly Action[])[]): void {
  const workerOf = new Map<number, number>();
  for (const [worker, row] of rows.entries()) {
    for (const { stage } of row.flatMap(parts)) {
      const known = workerOf.get(stage) ?? worker;
      if (known !== worker) {
        const received = `stage ${stage} on workers ${known} and ${worker}`;
        throw refusal("each stage must be on one worker", received);
      }
      workerOf.set(stage, worker);
    }
  }
}

function checkLosses(rows: readonly (readonly Action[])[]): void {
  const forwards = rows.flat().flatMap(parts).filter(({ kind }) => kind === "F");
  const last = forwards.reduce((most, { stage }) => Math.max(most, stage), 0);
  const losses = forwards.filter(({ stage }) => stage === last);
  const late = losses.findIndex(({ microBatch }, i) => microBatch !== i);
  if (late < 0) return;
  const received = `${formatAction(losses[late]!)} as number ${late}`;
  throw refusal("the last stage must take micro-batches in order", received);
}

function refusal(must: string, received: string): RangeError {
  return new RangeError(`Cannot write lists for PyTorch: ${must}, received ${received}`);
}
