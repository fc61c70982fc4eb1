/**
 * Whether what clients saw of an object could have happened one operation after another.
 *
 * [Note: linearizability] An operation takes effect at one moment between its call and its return
 * (Herlihy, Wing: Linearizability, ACM TOPLAS 12(3), 1990). The search for such moments is that of
 * Wing and Gong (Testing and Verifying Concurrent Objects, JPDC 17, 1993): whatever was called before
 * the first return that is left may be next. As Lowe found (Testing for Linearizability, CCPE 29(4),
 * 2017), it is enough to come to a set of operations and a state once. Objects that do not know of
 * each other are judged one by one, which is the locality that Herlihy and Wing prove.
 *
 * @module
 */

import { digestOf } from "../digest.ts";

/**
 * An operation of a client on an object.
 *
 * @typeParam I what it was called with.
 * @typeParam O what it returned.
 */
export interface Operation<I, O> {
  /** Who called it, for reports. */
  readonly client: string;
  /** What it was called with. */
  readonly input: I;
  /** When it was called; only the order of calls and returns counts. */
  readonly call: number;
  /** When and what it returned. Absent: never, so it may have taken effect or not. */
  readonly returned?: { readonly at: number; readonly output: O };
}

/**
 * What an object does when nobody else uses it.
 *
 * @typeParam S its state, a value that can be cloned.
 * @typeParam I what operations are called with.
 * @typeParam O what they return.
 */
export interface SequentialModel<S, I, O> {
  /** The state at first. */
  readonly initial: S;
  /** The state after an operation, which must be a new value where it changes, and what it returns. */
  apply(state: S, input: I): { readonly state: S; readonly output: O };
  /** Name of the object that an operation is on, where there are several. Default: there is one. */
  objectOf?(input: I): string;
}

/** What was found of a history. */
export interface Linearization<I, O> {
  /** Whether there is an order that explains all that was returned. */
  readonly isLinearizable: boolean;
  /** For each object that order, or the longest that explains what it could. */
  readonly orders: ReadonlyMap<string, readonly Operation<I, O>[]>;
  /** The operations of which none could come next, where there is no order. */
  readonly stuck: readonly Operation<I, O>[];
}

/** Default of the most sets of operations and states that are looked at. */
export const MAX_LINEARIZATION_STATES = 1_000_000;

/**
 * A record of operations, in the order of their calls and returns.
 *
 * @example See {@linkcode checkLinearizable}
 * ```ts
 * import { History } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const history = new History<string, number>();
 * const returned = history.call("client", "read");
 * returned(7);
 * assert.deepEqual(history.operations, [
 *   { client: "client", input: "read", call: 0, returned: { at: 1, output: 7 } },
 * ]);
 * ```
 */
export class History<I, O> {
  readonly #operations: Operation<I, O>[] = [];
  #time = 0;

  /** All that was called, in order. */
  get operations(): readonly Operation<I, O>[] {
    return this.#operations;
  }

  /** Records a call; what it returns records the return, if there is one. */
  call(client: string, input: I): (output: O) => void {
    const operation = { client, input, call: this.#time++ };
    const index = this.#operations.push(operation) - 1;
    return (output) => {
      this.#operations[index] = { ...operation, returned: { at: this.#time++, output } };
    };
  }
}

/**
 * Looks for an order of operations that explains all that was returned: of those that overlap in any
 * order, of others as they came. What never returned may have taken effect at any time, or not.
 *
 * @param model what the object does alone.
 * @param operations what clients did, in any order.
 * @param maxStates most sets of operations and states, of each object.
 * @throws {RangeError} when there are more than `maxStates`.
 *
 * @example A register that forgets
 * ```ts
 * import { checkLinearizable, History, type SequentialModel } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * type Input = { write: number } | "read";
 * const register: SequentialModel<number, Input, number> = {
 *   initial: 0,
 *   apply: (state, input) =>
 *     input === "read" ? { state, output: state } : { state: input.write, output: input.write },
 * };
 *
 * const history = new History<Input, number>();
 * const written = history.call("a", { write: 1 });
 * history.call("b", "read")(1); // while it is written, either value is right
 * const late = history.call("c", "read");
 * written(1);
 * late(1);
 * assert.ok(checkLinearizable(register, history.operations).isLinearizable);
 *
 * history.call("c", "read")(0); // but nobody may see the old value after the new one
 * const { isLinearizable, stuck } = checkLinearizable(register, history.operations);
 * assert.ok(!isLinearizable);
 * assert.equal(stuck[0]?.returned?.output, 0);
 * ```
 */
export function checkLinearizable<S, I, O>(
  model: SequentialModel<S, I, O>,
  operations: readonly Operation<I, O>[],
  maxStates: number = MAX_LINEARIZATION_STATES,
): Linearization<I, O> {
  const objects = Map.groupBy(operations, ({ input }) => model.objectOf?.(input) ?? "");
  const orders = new Map<string, readonly Operation<I, O>[]>();
  for (const [name, part] of objects) {
    const { order, stuck } = search(model, part, maxStates);
    orders.set(name, order);
    if (stuck) return { isLinearizable: false, orders, stuck };
  }
  return { isLinearizable: true, orders, stuck: [] };
}

/** A call or a return in the list of what is left, in order of time. */
interface Entry {
  readonly index: number;
  readonly isCall: boolean;
  before: Entry | undefined;
  next: Entry | undefined;
  /** The return of a call. */
  end?: Entry | undefined;
}

/** Links the calls and returns of operations; the head stands for neither. */
function link(operations: readonly Operation<unknown, unknown>[]): Entry {
  const head: Entry = { index: -1, isCall: false, before: undefined, next: undefined };
  const events = operations.flatMap(({ call, returned }, index) => {
    const end = returned && { at: returned.at, entry: entryOf(index, false) };
    return [{ at: call, entry: { ...entryOf(index, true), end: end?.entry } }, ...end ? [end] : []];
  });
  // At one moment calls come first: operations that touch overlap.
  events.sort((a, b) => a.at - b.at || Number(b.entry.isCall) - Number(a.entry.isCall));
  let last = head;
  for (const { entry } of events) {
    last.next = entry;
    entry.before = last;
    last = entry;
  }
  return head;
}

function entryOf(index: number, isCall: boolean): Entry {
  return { index, isCall, before: undefined, next: undefined };
}

function unlink(entry: Entry | undefined): void {
  if (!entry) return;
  entry.before!.next = entry.next;
  if (entry.next) entry.next.before = entry.before;
}

function relink(entry: Entry | undefined): void {
  if (!entry) return;
  entry.before!.next = entry;
  if (entry.next) entry.next.before = entry;
}

function search<S, I, O>(
  model: SequentialModel<S, I, O>,
  operations: readonly Operation<I, O>[],
  maxStates: number,
): { order: Operation<I, O>[]; stuck?: Operation<I, O>[] } {
  const head = link(operations), seen = new Set<string>();
  const outputs = operations.map(({ returned }) => returned && digestOf(returned.output));
  const taken: { readonly entry: Entry; readonly state: S }[] = [];
  let state = model.initial, done = 0n, best: Entry[] = [], stuck: number[] = [];
  let left = operations.filter(({ returned }) => returned).length;
  for (let entry = head.next; left > 0;) {
    if (entry?.isCall) {
      const { index } = entry, bit = 1n << BigInt(index);
      const next = model.apply(state, operations[index]!.input);
      const fits = outputs[index] === undefined || digestOf(next.output) === outputs[index];
      const key = `${done | bit} ${digestOf(next.state)}`;
      if (!fits || seen.has(key)) {
        entry = entry.next;
        continue;
      }
      if (seen.size === maxStates) throw tooMany(operations.length, maxStates);
      seen.add(key);
      taken.push({ entry, state });
      ({ state } = next);
      done |= bit;
      if (entry.end) left--;
      unlink(entry);
      unlink(entry.end);
      entry = head.next;
    } else {
      // Whatever is next must have been called before this return: the last choice was wrong.
      if (taken.length >= best.length) {
        best = taken.map(({ entry }) => entry);
        stuck = callsBefore(head, entry);
      }
      const last = taken.pop();
      if (!last) {
        const named = (index: number) => operations[index]!;
        return { order: best.map(({ index }) => named(index)), stuck: stuck.map(named) };
      }
      relink(last.entry.end);
      relink(last.entry);
      ({ state } = last);
      done &= ~(1n << BigInt(last.entry.index));
      if (last.entry.end) left++;
      entry = last.entry.next;
    }
  }
  return { order: taken.map(({ entry }) => operations[entry.index]!) };
}

/** The calls that could have come next. */
function callsBefore(head: Entry, end: Entry | undefined): number[] {
  const calls: number[] = [];
  for (let entry = head.next; entry && entry !== end; entry = entry.next) calls.push(entry.index);
  return calls;
}

function tooMany(operations: number, maxStates: number): RangeError {
  return new RangeError(
    `Cannot check a history of ${operations} operations: it must have at most ${maxStates} states`,
  );
}
