/** The action list: the actions of one worker in one step, as packed integers behind a typed view. */

import { type Action, type ActionKind, formatAction } from "./action.ts";

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
const HALF_SHIFT = 3, JOIN_SHIFT = 5, STAGE_SHIFT = 7;
const STAGES_MAX = 2 ** (31 - STAGE_SHIFT);
const MICRO_BATCHES_MAX = 2 ** 31;
const SLICES_MAX = 2 ** 15;

/**
 * An immutable list of actions.
 *
 * Each plain part of an action takes eight bytes, so that lists of millions of actions fit: word 0
 * holds the kind in bits 0-2, the half in bits 3-4 (0 whole, 1 first, 2 second), the join in bits
 * 5-6 and the stage above; word 1 is the micro-batch; slices are in a separate array. Analyses read the
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
  /** The slice of each part, from 1; absent if every part covers a whole sequence. */
  readonly #slices: Int16Array | undefined;

  private constructor({ words, starts, slices }: ReturnType<Packer["finish"]>) {
    this.#words = words;
    this.#starts = starts;
    this.#slices = slices;
  }

  /**
   * Packs the actions in their order.
   *
   * @throws {RangeError} if a stage, a micro-batch or a slice is not a whole number that fits, or if
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

  /** True if a backward computes one half of a micro-batch. */
  get hasHalves(): boolean {
    for (let part = 0; part < this.partCount; part++) if (this.halfAt(part) !== 0) return true;
    return false;
  }

  /** The kind of a part as its number in {@linkcode KINDS}. */
  kindAt(part: number): number {
    return this.#word(part) & 7;
  }

  /** The half of a part: 0 for a whole micro-batch, 1 for its first half, 2 for its second. */
  halfAt(part: number): number {
    return (this.#word(part) >> HALF_SHIFT) & 3;
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

  /** The slice of a part; 0 where it is of a whole sequence. */
  sliceAt(part: number): number {
    return Math.max(0, (this.#slices?.[part] ?? 0) - 1);
  }

  /** The number of slices of each micro-batch; 1 if actions cover whole sequences. */
  get slices(): number {
    return this.#slices?.reduce((a, b) => Math.max(a, b), 1) ?? 1;
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
    const half = this.halfAt(start), slice = this.#slices?.[start] ?? 0;
    const kind = KINDS[this.kindAt(start)] as ActionKind;
    const stage = this.stageAt(start);
    const microBatch = this.microBatchAt(start);
    let next = start + 1;
    if (next === end && half === 0 && slice === 0) return { kind, stage, microBatch };
    const second = next < end && this.joinAt(next) === JOIN.plus
      ? this.microBatchAt(next++)
      : undefined;
    return {
      kind,
      stage,
      microBatch,
      ...second !== undefined && { second },
      ...half !== 0 && { half: (half - 1) as 0 | 1 },
      ...slice !== 0 && { slice: slice - 1 },
      ...next < end && { overlap: this.#unpack(next, end) },
    };
  }
}

/** Collects the words of a list that grows. */
class Packer {
  #words = new Int32Array(64);
  #used = 0;
  #starts: number[] = [];
  /** The slices of all parts so far, once one part has a slice. */
  #slices: number[] | undefined;
  #isComposed = false;

  add(action: Action, join: number): void {
    const { kind, stage, microBatch, second, half, slice, overlap } = action;
    checkNumber("stage", stage, STAGES_MAX);
    if (slice !== undefined) checkNumber("slice", slice, SLICES_MAX);
    const bits = KIND[kind] | ((half === undefined ? 0 : half + 1) << HALF_SHIFT) |
      (stage << STAGE_SHIFT);
    if (join === JOIN.none) this.#starts.push(this.#used / WORDS_PER_PART);
    this.#push(bits | (join << JOIN_SHIFT), microBatch, slice);
    if (second !== undefined) this.#push(bits | (JOIN.plus << JOIN_SHIFT), second, slice);
    if (overlap === undefined) return;
    if (join !== JOIN.none) {
      throw new RangeError(
        `Cannot pack ${formatAction(action)}: an overlap must be of two actions, received three`,
      );
    }
    this.add(overlap, JOIN.overlap);
  }

  finish() {
    return {
      words: this.#words.slice(0, this.#used),
      starts: this.#isComposed ? Int32Array.from(this.#starts) : undefined,
      slices: this.#slices && Int16Array.from(this.#slices),
    };
  }

  #push(word: number, microBatch: number, slice: number | undefined): void {
    checkNumber("micro-batch", microBatch, MICRO_BATCHES_MAX);
    if (slice !== undefined) {
      this.#slices ??= new Array<number>(this.#used / WORDS_PER_PART).fill(0);
    }
    this.#slices?.push(slice === undefined ? 0 : slice + 1);
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
  throw new RangeError(
    `Cannot pack an action: its ${name} must be a whole number from 0 to ${limit - 1}, ` +
      `received ${value}`,
  );
}

/** A plain part of an action: the numbers that {@linkcode ActionList} packs. */
export interface PackedPart {
  /** The kind as its number in {@linkcode KINDS}. */
  readonly kind: number;
  readonly stage: number;
  readonly microBatch: number;
  /** 0 for a whole micro-batch, 1 for its first half, 2 for its second. */
  readonly half: number;
  /** 0 for a whole sequence. */
  readonly slice: number;
}

/** All numbers of a part of a list. */
export function partAt(list: ActionList, part: number): PackedPart {
  return {
    kind: list.kindAt(part),
    stage: list.stageAt(part),
    microBatch: list.microBatchAt(part),
    half: list.halfAt(part),
    slice: list.sliceAt(part),
  };
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
    return kind === KIND.I ? 0 : list.halfAt(part) === 0 ? -1 : -0.5;
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
