/** The action list: what one worker does in one step, as packed integers behind a typed view. */

import { type Action, type ActionKind, formatAction } from "./action.ts";

/**
 * How two neighbouring parts of a list belong together: a part starts an action of its own, is
 * the second micro-batch of the forward before it, or runs at the same time as the parts before.
 */
export const JOIN = { none: 0, plus: 1, overlap: 2 } as const;

/** The kinds of action in the order of their packed numbers. */
export const KINDS: readonly ActionKind[] = ["F", "B", "I", "W"];

/** The packed number of each kind: `KINDS[KIND.B] === "B"`. */
export const KIND = { F: 0, B: 1, I: 2, W: 3 } as const;

const WORDS_PER_PART = 2;
const STAGE_SHIFT = 6;
const STAGES_MAX = 2 ** (31 - STAGE_SHIFT);
const MICRO_BATCHES_MAX = 2 ** 31;

/**
 * An immutable list of actions.
 *
 * Each plain part of an action takes eight bytes, so that lists of millions of actions fit: word 0
 * holds the kind in bits 0-1, the half in bits 2-3 (0 whole, 1 first, 2 second), the join in bits
 * 4-5 and the stage above; word 1 is the micro-batch. Analyses read the parts by number; everyone
 * else iterates over actions.
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
  /** Where each action starts, in parts; absent where every action is one part. */
  readonly #starts: Int32Array | undefined;

  private constructor(words: Int32Array, starts: Int32Array | undefined) {
    this.#words = words;
    this.#starts = starts;
  }

  /**
   * Packs the actions in their order.
   *
   * @throws {RangeError} if a stage or a micro-batch is not a whole number that fits, or if an
   * overlap is nested in another.
   */
  static from(actions: Iterable<Action>): ActionList {
    const builder = new Packer();
    for (const action of actions) builder.add(action, JOIN.none);
    const { words, starts } = builder.finish();
    return new ActionList(words, starts);
  }

  /** The number of actions. */
  get length(): number {
    return this.#starts?.length ?? this.partCount;
  }

  /** The number of plain parts; more than `length` where actions are composed. */
  get partCount(): number {
    return this.#words.length / WORDS_PER_PART;
  }

  /** Whether a backward of it computes one half of a micro-batch. */
  get hasHalves(): boolean {
    for (let part = 0; part < this.partCount; part++) if (this.halfAt(part) !== 0) return true;
    return false;
  }

  /** The kind of a part as its number in {@linkcode KINDS}. */
  kindAt(part: number): number {
    return this.#word(part) & 3;
  }

  /** The half of a part: 0 for a whole micro-batch, 1 for its first half, 2 for its second. */
  halfAt(part: number): number {
    return (this.#word(part) >> 2) & 3;
  }

  /** How a part belongs to the one before it, as in {@linkcode JOIN}. */
  joinAt(part: number): number {
    return (this.#word(part) >> 4) & 3;
  }

  /** The stage of a part. */
  stageAt(part: number): number {
    return this.#word(part) >> STAGE_SHIFT;
  }

  /** The micro-batch of a part. */
  microBatchAt(part: number): number {
    return this.#words[part * WORDS_PER_PART + 1] as number;
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
    for (let i = 0, n = this.length; i < n; i++) yield this.at(i) as Action;
  }

  /** The actions as one row of CSV. */
  toString(): string {
    const cells: string[] = [];
    for (const action of this) cells.push(formatAction(action));
    return cells.join(",");
  }

  #word(part: number): number {
    return this.#words[part * WORDS_PER_PART] as number;
  }

  #unpack(start: number, end: number): Action {
    const half = this.halfAt(start);
    const kind = KINDS[this.kindAt(start)] as ActionKind;
    const stage = this.stageAt(start);
    const microBatch = this.microBatchAt(start);
    let next = start + 1;
    const second = next < end && this.joinAt(next) === JOIN.plus
      ? this.microBatchAt(next++)
      : undefined;
    return {
      kind,
      stage,
      microBatch,
      ...(second === undefined ? {} : { second }),
      ...(half === 0 ? {} : { half: (half - 1) as 0 | 1 }),
      ...(next < end ? { overlap: this.#unpack(next, end) } : {}),
    };
  }
}

/** Collects the words of a list that grows. */
class Packer {
  #words = new Int32Array(64);
  #used = 0;
  #starts: number[] = [];
  #composed = false;

  add(action: Action, join: number): void {
    const { kind, stage, microBatch, second, half, overlap } = action;
    checkNumber("stage", stage, STAGES_MAX);
    const bits = KIND[kind] | ((half === undefined ? 0 : half + 1) << 2) | (stage << STAGE_SHIFT);
    if (join === JOIN.none) this.#starts.push(this.#used / WORDS_PER_PART);
    this.#push(bits | (join << 4), microBatch);
    if (second !== undefined) this.#push(bits | (JOIN.plus << 4), second);
    if (overlap === undefined) return;
    if (join !== JOIN.none) {
      throw new RangeError(
        `Cannot pack ${formatAction(action)}: an overlap must be of two actions, received three`,
      );
    }
    this.add(overlap, JOIN.overlap);
  }

  finish(): { words: Int32Array; starts: Int32Array | undefined } {
    return {
      words: this.#words.slice(0, this.#used),
      starts: this.#composed ? Int32Array.from(this.#starts) : undefined,
    };
  }

  #push(word: number, microBatch: number): void {
    checkNumber("micro-batch", microBatch, MICRO_BATCHES_MAX);
    if (this.#used === this.#words.length) {
      const grown = new Int32Array(this.#words.length * 2);
      grown.set(this.#words);
      this.#words = grown;
    }
    this.#words[this.#used++] = word;
    this.#words[this.#used++] = microBatch;
    if (((word >> 4) & 3) !== JOIN.none) this.#composed = true;
  }
}

function checkNumber(what: string, value: number, limit: number): void {
  if (Number.isInteger(value) && value >= 0 && value < limit) return;
  throw new RangeError(
    `Cannot pack an action: its ${what} must be a whole number from 0 to ${limit - 1}, ` +
      `received ${value}`,
  );
}
