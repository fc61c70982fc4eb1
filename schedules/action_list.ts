/**
 * The action list: the actions of one worker in one step, as packed integers behind a typed view; and
 * lists as CSV, also as PyTorch reads them: a row for each rank, computation only.
 */

import { type Action, type ActionKind, formatAction, isPlain, parts, WHOLE } from "./action.ts";
import { assertInput, quote, refusal } from "./errors.ts";

/**
 * The relation of a part of a list to the part before: it starts a new action, is the second
 * micro-batch of the forward before it, or runs at the same time as the parts before.
 */
export const JOIN = { none: 0, plus: 1, overlap: 2 } as const;

/** The kinds of action in the order of their packed numbers. */
export const KINDS: readonly ActionKind[] = ["F", "B", "I", "W", "R"];

/** The packed number of each kind: `KINDS[KIND.B] === "B"`. */
export const KIND = { F: 0, B: 1, I: 2, W: 3, R: 4 } as const;

const WORDS_PER_PART = 3;
const JOIN_SHIFT = 5, STAGE_SHIFT = 7;
const STAGES_MAX = 2 ** (31 - STAGE_SHIFT);
const MICRO_BATCHES_MAX = 2 ** 31;
const COUNT_SHIFT = 15, COUNT_MAX = 2 ** COUNT_SHIFT;

/**
 * An immutable list of actions.
 *
 * Each plain part of an action takes twelve bytes, so that lists of millions of actions fit: word 0
 * holds the kind in bits 0-2, the join in bits 5-6 and the stage above; word 1 is the micro-batch;
 * word 2 is the part of the micro-batch, its index in bits 0-14 and the number of parts above.
 * Analyses read the parts by number; other code iterates over actions.
 *
 * @example
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert/strict";
 * import { ActionList, B, F } from "@troupe/troupe/schedules";
 *
 * const list = ActionList.from([F(0, 0, 1), B(0, 0), B(0, 1)]);
 * strictEqual(list.length, 3);
 * strictEqual(list.partCount, 4);
 * strictEqual(list.toString(), "0F0+1,0B0,0B1");
 * deepStrictEqual(list.at(1), B(0, 0));
 * ```
 */
export class ActionList implements Iterable<Action> {
  readonly #words: Int32Array;
  /** The first part of each action; absent if every action is one part. */
  readonly #starts: Int32Array | undefined;
  /** The number of parts that forwards run in: slices of sequences. */
  readonly slices: number;
  /** The most parts that an action runs in. */
  readonly cuts: number;

  private constructor({ words, starts, slices, cuts }: Packer) {
    this.#words = Int32Array.from(words);
    this.#starts = starts.length < this.partCount ? Int32Array.from(starts) : undefined;
    this.slices = slices;
    this.cuts = cuts;
  }

  /**
   * Packs the actions in their order.
   *
   * @throws {RangeError} if a kind is unknown, a stage, a micro-batch or a part is not a whole number
   * that fits, or an overlap is nested in another.
   */
  static from(actions: Iterable<Action>): ActionList {
    const packer = new Packer();
    for (const action of actions) packer.add(action, JOIN.none);
    return new ActionList(packer);
  }

  /** The number of actions. */
  get length(): number {
    return this.#starts?.length ?? this.partCount;
  }

  /** The number of plain parts; more than `length` if actions are composed. */
  get partCount(): number {
    return this.#words.length / WORDS_PER_PART;
  }

  /** The kind of a part as a number: F is 0, B 1, I 2, W 3 and R 4. */
  kindAt(part: number): number {
    return this.#word(part) & 7;
  }

  /** The relation of a part to the part before it: none (0), a doubled forward (1), an overlap (2). */
  joinAt(part: number): number {
    return (this.#word(part) >> JOIN_SHIFT) & 3;
  }

  /** The stage of a part. */
  stageAt(part: number): number {
    return this.#word(part) >> STAGE_SHIFT;
  }

  /** The micro-batch of a part. */
  microBatchAt(part: number): number {
    return this.#words[part * WORDS_PER_PART + 1]!;
  }

  /** The index of the part of the micro-batch; 0 for a whole one. */
  indexAt(part: number): number {
    return this.#words[part * WORDS_PER_PART + 2]! & (COUNT_MAX - 1);
  }

  /** The number of parts of the micro-batch; 1 for a whole one. */
  countAt(part: number): number {
    return this.#words[part * WORDS_PER_PART + 2]! >> COUNT_SHIFT;
  }

  /** The slice of a part; 0 where forwards are of whole sequences. */
  sliceAt(part: number): number {
    return this.slices > 1 ? this.indexAt(part) : 0;
  }

  /** The first part of an action; the number of parts for the index after the last. */
  startOf(index: number): number {
    return this.#starts === undefined ? index : this.#starts[index] ?? this.partCount;
  }

  /** The action at an index, undefined outside the list. */
  at(index: number): Action | undefined {
    if (!Number.isInteger(index) || index < 0 || index >= this.length) return undefined;
    return this.#unpack(this.startOf(index), this.startOf(index + 1));
  }

  /** The actions in order. */
  *[Symbol.iterator](): IterableIterator<Action> {
    for (let i = 0, n = this.length; i < n; i++) yield this.at(i)!;
  }

  /** The actions as one row of CSV. */
  toString(): string {
    return Array.from(this, formatAction).join(",");
  }

  #word(part: number): number {
    return this.#words[part * WORDS_PER_PART]!;
  }

  #unpack(start: number, end: number): Action {
    const index = this.indexAt(start), count = this.countAt(start);
    const kind = KINDS[this.kindAt(start)] as ActionKind;
    const stage = this.stageAt(start);
    const microBatch = this.microBatchAt(start);
    let next = start + 1;
    if (next === end && count === 1) return { kind, stage, microBatch };
    const second = next < end && this.joinAt(next) === JOIN.plus
      ? this.microBatchAt(next++)
      : undefined;
    return {
      kind,
      stage,
      microBatch,
      ...second !== undefined && { second },
      ...count > 1 && { part: { index, count } },
      ...next < end && { overlap: this.#unpack(next, end) },
    };
  }
}

/** Collects the words of a list that grows. */
class Packer {
  readonly words: number[] = [];
  /** The first part of each action. */
  readonly starts: number[] = [];
  slices = 1;
  cuts = 1;

  add(action: Action, join: number): void {
    const { kind, stage, microBatch, second, part = WHOLE, overlap } = Object(action) as Action;
    if (!Object.hasOwn(KIND, kind)) {
      throw refusal("pack an action", `its kind must be one of ${KINDS}`, kind);
    }
    checkNumber("stage", stage, STAGES_MAX);
    checkNumber("number of parts", part.count, COUNT_MAX);
    checkNumber("part", part.index, part.count);
    this.cuts = Math.max(this.cuts, part.count);
    if (kind === "F") this.slices = Math.max(this.slices, part.count);
    if (join === JOIN.none) this.starts.push(this.words.length / WORDS_PER_PART);
    const bits = KIND[kind] | (stage << STAGE_SHIFT);
    const push = (microBatch: number, join: number) => {
      checkNumber("micro-batch", microBatch, MICRO_BATCHES_MAX);
      const cut = (part.count << COUNT_SHIFT) | part.index;
      this.words.push(bits | (join << JOIN_SHIFT), microBatch, cut);
    };
    push(microBatch, join);
    if (second !== undefined) push(second, JOIN.plus);
    if (overlap === undefined) return;
    if (join === JOIN.none) return this.add(overlap, JOIN.overlap);
    throw refusal(`pack ${formatAction(action)}`, "an overlap must be of two actions", "three");
  }
}

function checkNumber(name: string, value: number, limit: number): void {
  if (Number.isInteger(value) && value >= 0 && value < limit) return;
  const must = `its ${name} must be a whole number from 0 to ${limit - 1}`;
  throw refusal("pack an action", must, value);
}

/** A plain part of an action: the numbers that {@linkcode ActionList} packs. */
export interface PackedPart {
  /** The kind as its number in {@linkcode KINDS}. */
  readonly kind: number;
  readonly stage: number;
  readonly microBatch: number;
  /** The index of the part of its micro-batch; 0 for a whole one. */
  readonly index: number;
  /** The number of parts; 1 for a whole micro-batch. */
  readonly count: number;
}

/** All numbers of a part of a list. */
export function partAt(list: ActionList, part: number): PackedPart {
  return {
    kind: list.kindAt(part),
    stage: list.stageAt(part),
    microBatch: list.microBatchAt(part),
    index: list.indexAt(part),
    count: list.countAt(part),
  };
}

/** Returns 2 if lists of whole forwards run backwards in two parts, 1 otherwise. */
export function halvesOf(
  { lists = [], slices = 1 }: { lists?: readonly ActionList[]; slices?: number },
): 1 | 2 {
  return slices === 1 && lists.some(({ cuts }) => cuts > 1) ? 2 : 1;
}

/**
 * For each part of a list, the change in the worker's activations, in those of one stage and
 * micro-batch, or of one slice if micro-batches are cut. If there is an R, activations live from the R
 * on: the forward keeps only its input.
 */
export function activationChanges(list: ActionList): Float64Array {
  const cellOf = (part: number) =>
    `${list.stageAt(part)} ${list.microBatchAt(part)} ${list.sliceAt(part)}`;
  const recomputed = new Set<string>(), changes = new Float64Array(list.partCount);
  changes.forEach((_, part) => list.kindAt(part) === KIND.R && recomputed.add(cellOf(part)));
  return changes.map((_, part) => {
    const kind = list.kindAt(part);
    if (kind === KIND.R) return 1;
    if (kind === KIND.F) return recomputed.size > 0 && recomputed.has(cellOf(part)) ? 0 : 1;
    return kind === KIND.I ? 0 : -list.slices / list.countAt(part);
  });
}

/** Peak number of activations, in those of a whole micro-batch of one stage. */
export function peakOf(list: ActionList): number {
  let live = 0, peak = 0;
  for (const change of activationChanges(list)) {
    live += change;
    peak = Math.max(peak, live);
  }
  return peak / list.slices;
}

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
 *
 * deepStrictEqual(parseAction("(0F1;7B0)OVERLAP_F_B"), { ...F(0, 1), overlap: B(7, 0) });
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
 *
 * const overlapped = { ...F(0, 1), overlap: B(7, 0) };
 * strictEqual(formatTorchCsv([[F(0, 0), overlapped]]), "0F0,(0F1;7B0)OVERLAP_F_B\n");
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

/** The parts of a kind in a list, in order. */
export function* partsOf(list: ActionList, kind: number): IterableIterator<PackedPart> {
  for (let part = 0; part < list.partCount; part++) {
    if (list.kindAt(part) === kind) yield partAt(list, part);
  }
}
