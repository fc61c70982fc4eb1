/** Action lists as CSV, also as PyTorch reads them: a row for each rank, computation only. */

import { type Action, type ActionKind, formatAction, isPlain, parts } from "./action.ts";
import { ActionList } from "./action_list.ts";
import { assertInput, quote, refusal } from "./errors.ts";

const PLAIN = /^(\d+)([FBIWR])(\d+)(?:\+(\d+)|\.(\d+)(?:\/(\d+))?)?$/;
/** An overlap as PyTorch writes it. */
const TORCH_OVERLAP = /^\(([^;()]+);([^;()]+)\)OVERLAP_F_B$/;
/** Other cells of PyTorch's lowered files, which follow from the computation. */
const TORCH_OTHER = /^\d+(?:SEND_[FB]|RECV_[FB]|UNSHARD|RESHARD|REDUCE_GRAD)\d*$/;

/**
 * Reads an action: `2F0`, a doubled forward `0F4+5`, an action of a part of its micro-batch (`2F0.1/4`;
 * `0B4.0` is the first of two), or an overlap, as this package writes it (`0F1&7B0`) or as PyTorch
 * does (`(0F1;7B0)OVERLAP_F_B`).
 *
 * @throws {SyntaxError} if the text is none of these.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, parseAction } from "@troupe/troupe/schedules";
 * import { overlap } from "./action.ts";
 *
 * deepStrictEqual(parseAction("(0F1;7B0)OVERLAP_F_B"), overlap(F(0, 1), B(7, 0)));
 * ```
 */
export function parseAction(text: string): Action {
  const trimmed = text.trim();
  const torch = TORCH_OVERLAP.exec(trimmed);
  const [first = "", second, ...more] = torch === null ? trimmed.split("&") : torch.slice(1);
  const action = parsePlain(first);
  if (action !== undefined && second === undefined) return action;
  const other = second === undefined ? undefined : parsePlain(second);
  if (action !== undefined && other !== undefined && more.length === 0) {
    return { ...action, overlap: other };
  }
  throw new SyntaxError(
    `Cannot parse an action: it must be like 2F0, 0F4+5, 0B4.0, 2F0.1/4, 0F1&7B0 or ` +
      `(0F1;7B0)OVERLAP_F_B, received ${quote(text)}`,
  );
}

function parsePlain(text: string): Action | undefined {
  const match = PLAIN.exec(text.trim());
  if (match === null) return undefined;
  const [, stage, kind, microBatch, second, index, count = "2"] = match;
  if ((second !== undefined && kind !== "F") || Number(index ?? 0) >= Number(count)) {
    return undefined;
  }
  return {
    kind: kind as ActionKind,
    stage: Number(stage),
    microBatch: Number(microBatch),
    ...second !== undefined && { second: Number(second) },
    ...index !== undefined && { part: { index: Number(index), count: Number(count) } },
  };
}

/**
 * The first row of a file that PyTorch's reader would misread: that reader takes the action at the
 * start of a cell, and refuses a cell without one.
 */
const NOT_FOR_TORCH =
  "# PyTorch would take 0F4+5 for 0F4 and 0F3&3B1 for 0F3: --format pytorch writes what it can read";

/**
 * Writes action lists as CSV: a row for each worker, a cell for each action, no empty cells. If an
 * action is composed, which PyTorch's reader would misread, the first row is a comment, which it
 * refuses; {@linkcode formatTorchCsv} writes CSV for PyTorch.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { createSchedule, formatCsv, withLists } from "@troupe/troupe/schedules";
 *
 * const { lists } = withLists(createSchedule("1f1b", { workers: 2, microBatches: 2 }));
 * strictEqual(formatCsv(lists), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
 * ```
 */
export function formatCsv(lists: Iterable<Iterable<Action>>): string {
  let text = "", isComposed = false;
  for (const list of lists) {
    const actions = [...list];
    text += actions.map(formatAction).join(",") + "\n";
    isComposed ||= actions.some((action) => !isPlain(action));
  }
  return isComposed ? `${NOT_FOR_TORCH}\n${text}` : text;
}

/** The most rows of a CSV, one for each worker. */
const ROWS_MAX = 65_536;

/**
 * Reads action lists from CSV. It skips empty cells, which PyTorch writes for time in which a worker
 * waits, PyTorch's sends, receives and collectives, which follow from the computation, and a first row
 * that begins with `#`.
 *
 * @throws {SyntaxError} if a cell is not an action (the text says which), or if there is no row.
 * @throws {RangeError} if there are more than 65,536 rows.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { formatCsv, parseCsv } from "@troupe/troupe/schedules";
 *
 * const lists = parseCsv("0F0,0SEND_F0,,0B0\n1RECV_F0,1F0,1B0\n");
 * strictEqual(formatCsv(lists), "0F0,0B0\n1F0,1B0\n");
 * ```
 */
export function parseCsv(text: string): ActionList[] {
  const rows = text.replace(/^\uFEFF?(#.*\n)?/, "").split("\n", ROWS_MAX + 1)
    .map((row) => row.replace(/\r$/, ""));
  while (rows.at(-1) === "") rows.pop();
  const must = `the CSV must have at most ${ROWS_MAX} rows`;
  assertInput(rows.length <= ROWS_MAX, "parse action lists", must, "more");
  if (rows.length === 0 || (rows.length === 1 && rows[0]?.trim() === "")) {
    throw new SyntaxError(
      "Cannot parse action lists: the CSV must have a row for each worker, received no row",
    );
  }
  return rows.map((row, worker) => ActionList.from(parseRow(row, worker)));
}

function* parseRow(row: string, worker: number): Iterable<Action> {
  for (const [index, cell] of row.split(",").entries()) {
    const text = cell.trim().replace(/^"(.*)"$/, "$1").trim();
    if (text === "" || TORCH_OTHER.test(text)) continue;
    try {
      yield parseAction(text);
    } catch (cause) {
      if (!(cause instanceof SyntaxError)) throw cause;
      const where = `row ${worker + 1}, cell ${index + 1}`;
      throw new SyntaxError(`${cause.message} in ${where}`, { cause });
    }
  }
}

/**
 * Writes action lists as CSV that PyTorch reads (`_load_csv` of its pipeline schedules): an overlap is
 * `(0F1;7B0)OVERLAP_F_B`. PyTorch derives sends, receives and collectives from it.
 *
 * @throws {RangeError} for actions that PyTorch cannot express: a doubled forward, an
 * action of a part of a micro-batch, a recomputation, an overlap other than of a forward and a whole backward; for a stage on
 * several workers, as in pipelines of both directions; and for a last stage that takes micro-batches
 * out of order, as PyTorch counts losses in the order in which they come.
 *
 * @example
 * ```ts
 * import { strictEqual, throws } from "node:assert/strict";
 * import { B, F, formatTorchCsv } from "@troupe/troupe/schedules";
 * import { overlap } from "./action.ts";
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

/** The operation in refusals of lists that PyTorch cannot express. */
const WRITE = "write lists for PyTorch";

function formatTorchAction(action: Action): string {
  if (isPlain(action)) return formatAction(action);
  const [first, second, ...more] = parts(action);
  const kinds = [first, second].map((part) => part?.kind).sort().join("");
  if (first && second && more.length === 0 && kinds === "BF" && [first, second].every(isPlain)) {
    return `(${formatAction(first)};${formatAction(second)})OVERLAP_F_B`;
  }
  const must =
    "each action must be one of a whole micro-batch, or an overlap of a forward and a backward";
  throw refusal(WRITE, must, formatAction(action));
}

function checkPlaces(rows: readonly (readonly Action[])[]): void {
  const workerOf = new Map<number, number>();
  for (const [worker, row] of rows.entries()) {
    for (const { stage } of row.flatMap(parts)) {
      const known = workerOf.get(stage) ?? worker;
      const received = `stage ${stage} on workers ${known} and ${worker}`;
      assertInput(known === worker, WRITE, "each stage must be on one worker", received);
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
  throw refusal(WRITE, "the last stage must take micro-batches in order", received);
}
