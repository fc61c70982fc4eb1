/** The action list: the actions of one worker in one step, as packed integers behind a typed view. */

import { type Action, type ActionKind, formatAction, WHOLE } from "./action.ts";
import { refusal } from "./errors.ts";

/**
 * The relation of a part of a list to the part before: it starts a new action, is the second
 * micro-batch of the forward before it, or runs at the same time as the parts before.
 */
export const JOIN = { none: 0, plus: 1, overlap: 2 } as const;

/** The kinds of action in the order of their packed numbers. */
export const KINDS: readonly ActionKind[] = ["F", "B", "I", "W", "R"];

/** The packed number of each kind: `KINDS[KIND.B] === "B"`. */
export const KIND = { F: 0, B: 1, I: 2, W: 3, R: 4 } as const;

const WORDS_PER_PART = 2;
const JOIN_SHIFT = 5, STAGE_SHIFT = 7;
const STAGES_MAX = 2 ** (31 - STAGE_SHIFT);
const MICRO_BATCHES_MAX = 2 ** 31;
const COUNT_SHIFT = 15, COUNT_MAX = 2 ** COUNT_SHIFT;

/**
 * An immutable list of actions.
 *
 * Each plain part of an action takes eight bytes, so that lists of millions of actions fit: word 0
 * holds the kind in bits 0-2, the join in bits 5-6 and the stage above; word 1 is the micro-batch;
 * parts of micro-batches are in a separate array. Analyses read the
 * parts by number; other code iterates over actions.
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
  /** Count and index of each action's part of its micro-batch; absent if all are of whole ones. */
  readonly #cuts: Int32Array | undefined;
  /** The number of parts that forwards run in: slices of sequences. */
  readonly slices: number;
  /** The most parts that an action runs in. */
  readonly cuts: number;

  private constructor({ words, starts, cuts }: ReturnType<Packer["finish"]>) {
    this.#words = words;
    this.#starts = starts;
    this.#cuts = cuts;
    const most = (all: (part: number) => boolean) =>
      cuts?.reduce((a, _, part) => all(part) ? Math.max(a, this.countAt(part)) : a, 1) ?? 1;
    this.slices = most((part) => this.kindAt(part) === KIND.F);
    this.cuts = most(() => true);
  }

  /**
   * Packs the actions in their order.
   *
   * @throws {RangeError} if a stage, a micro-batch or a part is not a whole number that fits, or if
   * an overlap is nested in another.
   */
  static from(actions: Iterable<Action>): ActionList {
    const builder = new Packer();
    for (const action of actions) builder.add(action, JOIN.none);
    return new ActionList(builder.finish());
  }

  /** The number of actions. */
  get length(): number {
    return this.#starts?.length ?? this.partCount;
  }

  /** The number of plain parts; more than `length` if actions are composed. */
  get partCount(): number {
    return this.#words.length / WORDS_PER_PART;
  }

  /** The kind of a part as its number in {@linkcode KINDS}. */
  kindAt(part: number): number {
    return this.#word(part) & 7;
  }

  /** The relation of a part to the part before it, as in {@linkcode JOIN}. */
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
    return this.#cuts === undefined ? 0 : this.#cuts[part]! & (COUNT_MAX - 1);
  }

  /** The number of parts of the micro-batch; 1 for a whole one. */
  countAt(part: number): number {
    return this.#cuts === undefined ? 1 : this.#cuts[part]! >> COUNT_SHIFT;
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
    const cells: string[] = [];
    for (const action of this) cells.push(formatAction(action));
    return cells.join(",");
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

/** The packed part of an action of a whole micro-batch. */
const UNCUT = 1 << COUNT_SHIFT;

/** Collects the words of a list that grows. */
class Packer {
  #words = new Int32Array(64);
  #used = 0;
  #starts: number[] = [];
  /** The parts of micro-batches so far, once an action has one. */
  #cuts: number[] | undefined;
  #isComposed = false;

  add(action: Action, join: number): void {
    const { kind, stage, microBatch, second, part = WHOLE, overlap } = action;
    checkNumber("stage", stage, STAGES_MAX);
    checkNumber("number of parts", part.count, COUNT_MAX);
    checkNumber("part", part.index, part.count);
    const bits = KIND[kind] | (stage << STAGE_SHIFT),
      cut = (part.count << COUNT_SHIFT) | part.index;
    if (join === JOIN.none) this.#starts.push(this.#used / WORDS_PER_PART);
    this.#push(bits | (join << JOIN_SHIFT), microBatch, cut);
    if (second !== undefined) this.#push(bits | (JOIN.plus << JOIN_SHIFT), second, cut);
    if (overlap === undefined) return;
    if (join === JOIN.none) return this.add(overlap, JOIN.overlap);
    throw refusal(`pack ${formatAction(action)}`, "an overlap must be of two actions", "three");
  }

  finish() {
    return {
      words: this.#words.slice(0, this.#used),
      starts: this.#isComposed ? Int32Array.from(this.#starts) : undefined,
      cuts: this.#cuts && Int32Array.from(this.#cuts),
    };
  }

  #push(word: number, microBatch: number, cut: number): void {
    checkNumber("micro-batch", microBatch, MICRO_BATCHES_MAX);
    if (cut !== UNCUT) this.#cuts ??= new Array<number>(this.#used / WORDS_PER_PART).fill(UNCUT);
    this.#cuts?.push(cut);
    if (this.#used === this.#words.length) {
      const grown = new Int32Array(this.#words.length * 2);
      grown.set(this.#words);
      this.#words = grown;
    }
    this.#words[this.#used++] = word;
    this.#words[this.#used++] = microBatch;
    if (((word >> JOIN_SHIFT) & 3) !== JOIN.none) this.#isComposed = true;
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
