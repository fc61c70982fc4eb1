/**
 * Strategies: each chooses the order of a run.
 *
 * @module
 */

import type { Candidate } from "../runtime/mod.ts";
import { substream } from "../runtime/world.ts";
import { assertInput } from "../runtime/types.ts";
import { stepName, type StepRecord } from "./recorder.ts";

/** FIFO order, except for delayed messages. */
class DelayedOrder {
  /** Positions of delayed messages among each other, by sequence number. */
  readonly #places = new Map<number, number>();

  /** Moves a message behind all others, including delayed ones. */
  put({ seq }: Candidate): void {
    this.#places.set(seq, this.#places.size);
  }

  /** Returns whether a message is delayed. */
  isDelayed({ seq }: Candidate): boolean {
    return this.#places.has(seq);
  }

  /** Returns the index of the next candidate. */
  first(candidates: readonly Candidate[]): number {
    if (this.#places.size === 0) return 0;
    const places = candidates.map(({ seq }) => this.#places.get(seq) ?? -1);
    return places.indexOf(Math.min(...places));
  }
}

/** A difference from FIFO order. */
export type Deviation =
  /** The candidate with this index, from 1, was chosen. */
  | { readonly step: number; readonly choice: number }
  /** The candidate with this index was moved behind all others, and stays there. */
  | { readonly step: number; readonly late: number }
  /** This number of timers, from 1, fired before although a message could be handled. */
  | { readonly step: number; readonly wait: number };

/** The next timer: there is none, it may fire before messages that can be handled now (`near`), or they
 * would have to wait too long (`far`). */
export type NextTimer = "none" | "near" | "far";

/** Facts about a run at its start. */
export interface RunStart {
  /** The seed of the run. */
  readonly seed: number;
  /** Number of the run in the exploration, from 0. */
  readonly run: number;
  /** Number of choices in the previous run, or a guess. */
  readonly expectedSteps: number;
}

/**
 * Chooses the order of a run, one step at a time.
 *
 * @example The newest message first
 * ```ts
 * import type { Strategy } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const newest: Strategy = {
 *   name: "newest",
 *   begin: () => true,
 *   choose: (candidates) => candidates.length - 1,
 * };
 * assert.ok(newest.begin({ seed: 0, run: 0, expectedSteps: 100 }));
 * ```
 */
export interface Strategy {
  /** Its name in reports and journals. */
  readonly name: string;
  /** Present if it enumerates all orders, which requires one seed and no faults. */
  readonly isExhaustive?: true;
  /** Starts a run; returns false if there is nothing left to explore. */
  begin(start: RunStart): boolean;
  /**
   * Returns the index of the next candidate, {@linkcode PRUNE} or {@linkcode WAIT}.
   *
   * @param candidates in canonical order: 0 is the choice without a strategy.
   * @param step number of the step in this run, including steps in `settle`. It stays the same after a
   * {@linkcode WAIT}.
   * @param state returns the digest of the whole state.
   * @param timer the next timer: choose {@linkcode WAIT} only if it is `near`. Default `none`.
   */
  choose(
    candidates: readonly Candidate[],
    step: number,
    state: () => number,
    timer?: NextTimer,
  ): number;
  /** Differences from FIFO order, if the strategy has a shorter form than one choice for each step. */
  readonly deviations?: readonly Deviation[] | undefined;
  /** Returns the running actor's next reading of the clock, if it is recorded. */
  reads?(): number | undefined;
  /** Returns the time of the chosen step, if it is recorded, so that timers fire in the recorded
   * order. */
  time?(): number | undefined;
  /** The time of the last step, if it is recorded: later timers have not fired. */
  readonly endMs?: number;
  /** Called at the end of a run: it failed, or no actor can continue. */
  end?(state: () => number): void;
}

/** A choice that ends the run because its rest is known. */
export const PRUNE: number = -1;

/** A choice to handle no message before the next timer. Without a timer, the run stops. */
export const WAIT: number = -2;

/** Guess of {@linkcode RunStart.expectedSteps} for a first run. */
export const FIRST_EXPECTED_STEPS = 256;

/** Throws a `RangeError` unless a parameter of a strategy is positive. */
function checkPositive(strategy: string, name: string, value: number): void {
  const must = `Cannot explore by ${strategy}: ${name} must be a positive integer`;
  assertInput(Number.isSafeInteger(value) && value >= 1, must, value);
}

/** Adds a timer that fires before a step. */
export function addWait(deviations: Deviation[], step: number): void {
  const last = deviations.at(-1), isSame = last && "wait" in last && last.step === step;
  if (isSame) deviations.pop();
  deviations.push({ step, wait: isSame ? last.wait + 1 : 1 });
}

/**
 * FIFO order except at `delays` random moments, at which the next message moves behind all others and
 * behind near timers. A few delays find most bugs, in orders that are close to FIFO and easy to read.
 *
 * Emmi, Qadeer, Rakamarić: Delay-Bounded Scheduling, POPL 2011, section 2. The paper tries all moments;
 * here they are random.
 *
 * @param delays number of delayed messages, 1 or more.
 * @throws {RangeError} when `delays` is not a positive integer.
 *
 * @example
 * ```ts
 * import { delay } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const strategy = delay(1);
 * strategy.begin({ seed: 1, run: 0, expectedSteps: 1 });
 * const message = { actor: "a", lane: "data", type: "Note", nth: 0 } as const;
 * const both = [{ ...message, from: "b", seq: 0 }, { ...message, from: "c", seq: 1 }];
 * assert.equal(strategy.choose(both, 0, () => 0), 1);
 * assert.equal(strategy.choose(both, 1, () => 0), 1);
 * assert.equal(strategy.choose([both[0]!], 2, () => 0), 0);
 * ```
 */
export function delay(delays: number): Strategy {
  checkPositive("delay", "delays", delays);
  let order = new DelayedOrder(), moments: number[], choices: number, deviations: Deviation[] = [];
  return {
    name: `delay(${delays})`,
    get deviations() {
      return deviations;
    },
    begin({ seed, expectedSteps }) {
      const next = substream(seed, "delay");
      order = new DelayedOrder();
      deviations = [];
      choices = 0;
      moments = Array.from({ length: delays }, () => Math.floor(next() * expectedSteps));
      return true;
    },
    choose(candidates, step, _state, timer) {
      const choice = choices++;
      for (const _ of moments.filter((moment) => moment === choice)) {
        const late = order.first(candidates);
        order.put(candidates[late]!);
        deviations.push({ step, late });
      }
      const first = order.first(candidates);
      if (timer !== "near" || !order.isDelayed(candidates[first]!)) return first;
      addWait(deviations, step);
      return WAIT;
    },
  };
}

/** The strategy of {@linkcode dfs}. */
export interface Dfs extends Strategy {
  /** Number of distinct states so far, including those at the end of a run. */
  readonly states: number;
}

/** A choice in the current run. */
interface Turn {
  choice: number;
  readonly candidates: number;
  /** Number of candidates, plus one if the next timer is near. */
  readonly arity: number;
}

/**
 * Every order, depth first; a run ends at a known state. Actors must expose their whole state
 * ({@linkcode Context.expose}); queues, timers and asks are always included. A run repeats the path to
 * its branch, because an actor's state cannot be copied. All runs have one seed and no faults.
 *
 * @param limit maximum number of states.
 * @throws {RangeError} (from `choose`) when there are more states.
 *
 * @example
 * ```ts
 * import { dfs } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(dfs().states, 0);
 * ```
 */
export function dfs(limit = 1_000_000): Dfs {
  const known = new Set<number>(), path: Turn[] = [];
  let depth = 0, isWalked = false;

  /** Adds a state; returns whether it is new. */
  const meet = (state: number) => {
    const before = known.size;
    if (known.add(state).size <= limit) return known.size > before;
    throw new RangeError(`Cannot explore by dfs: there must be at most ${limit} states`);
  };
  return {
    name: "dfs",
    isExhaustive: true,
    get states() {
      return known.size;
    },
    begin() {
      depth = 0;
      while (isWalked && path.length > 0 && ++path.at(-1)!.choice >= path.at(-1)!.arity) path.pop();
      if (isWalked && path.length === 0) return false;
      isWalked = true;
      return true;
    },
    choose({ length: candidates }, _step, state, timer) {
      const turn = path[depth];
      if (!turn && !meet(state())) return PRUNE;
      depth++;
      if (turn) return turn.choice < turn.candidates ? turn.choice : WAIT;
      path.push({ choice: 0, candidates, arity: candidates + (timer === "near" ? 1 : 0) });
      return 0;
    },
    end: (state) => void meet(state()),
  };
}

/**
 * Always the oldest message, control before data. Further runs are equal.
 *
 * @example
 * ```ts
 * import { fifo } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(fifo().choose([], 0, () => 0), 0);
 * ```
 */
export function fifo(): Strategy {
  return { name: "fifo", begin: () => true, choose: () => 0 };
}

/**
 * Random priorities, lowered at `depth - 1` random steps. A run finds a bug that needs `depth` events in
 * one order with a probability of at least 1/(n·k^(depth-1)), for n threads and k steps. Here, a thread
 * is an edge from a sender to an actor, with its own FIFO, or the clock. A thread receives its priority
 * when it first appears.
 *
 * Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with Probabilistic
 * Guarantees of Finding Bugs, ASPLOS 2010, section 3.
 *
 * @param depth number of ordering constraints of the bugs, 1 or more.
 * @throws {RangeError} when `depth` is not a positive integer.
 *
 * @example
 * ```ts
 * import { pct } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(pct(3).name, "pct(3)");
 * assert.throws(() => pct(0), /Cannot explore by pct: depth must be a positive integer, received 0/);
 * ```
 */
export function pct(depth: number): Strategy {
  checkPositive("pct", "depth", depth);
  const priorities = new Map<string, number>();
  let next: () => number, changes: Set<number>, lowest: number, choices: number;

  const priorityOf = (thread: string) => priorities.getOrInsertComputed(thread, next);
  const first = (candidates: readonly Candidate[], timer?: NextTimer) => {
    const index = highest(candidates, (candidate) => priorityOf(edgeOf(candidate)));
    if (timer !== "near") return index;
    return priorityOf(CLOCK) > priorityOf(edgeOf(candidates[index]!)) ? WAIT : index;
  };
  return {
    name: `pct(${depth})`,
    begin({ seed, expectedSteps }) {
      next = substream(seed, "pct");
      priorities.clear();
      lowest = choices = 0;
      changes = new Set(
        Array.from({ length: depth - 1 }, () => Math.floor(next() * expectedSteps)),
      );
      return true;
    },
    choose(candidates, _step, _state, timer) {
      const index = first(candidates, timer);
      if (!changes.has(choices++)) return index;
      priorities.set(index === WAIT ? CLOCK : edgeOf(candidates[index]!), --lowest);
      return first(candidates, timer);
    },
  };
}

/** The key of the clock among the edges. */
const CLOCK = "";

function edgeOf({ from, actor }: Candidate): string {
  return `${from}>${actor}`;
}

/** Returns the index of the candidate with the highest priority. */
function highest(
  candidates: readonly Candidate[],
  priorityOf: (candidate: Candidate) => number,
): number {
  let best = 0, bestPriority = -Infinity;
  for (let index = 0; index < candidates.length; index++) {
    const priority = priorityOf(candidates[index]!);
    if (priority > bestPriority) [best, bestPriority] = [index, priority];
  }
  return best;
}

/**
 * A random priority for each waiting message. The highest is handled first; messages that race with it
 * (for the same actor, so that their order matters) get new priorities. This samples the partial orders
 * of a run more evenly than a random walk, and has no parameter. A near timer has a priority too, which
 * stays until it fires.
 *
 * Yuan, Yang, Gu: Partial Order Aware Concurrency Sampling, CAV 2018, section 4.
 *
 * @example
 * ```ts
 * import { pos } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const strategy = pos();
 * assert.ok(strategy.begin({ seed: 1, run: 0, expectedSteps: 10 }));
 * const candidate = { actor: "a", lane: "data", from: "b", type: "Note", seq: 0, nth: 0 } as const;
 * assert.equal(strategy.choose([candidate], 0, () => 0), 0);
 * ```
 */
export function pos(): Strategy {
  const priorities = new Map<number, number>();
  let next: () => number;
  const priorityOf = (seq: number) => priorities.getOrInsertComputed(seq, next);
  return {
    name: "pos",
    begin({ seed }) {
      next = substream(seed, "pos");
      priorities.clear();
      return true;
    },
    choose(candidates, _step, _state, timer) {
      const index = highest(candidates, ({ seq }) => priorityOf(seq));
      const { actor, seq } = candidates[index]!;
      if (timer === "near" && priorityOf(TIMER) > priorityOf(seq)) {
        priorities.delete(TIMER);
        return WAIT;
      }
      for (const other of candidates) if (other.actor === actor) priorities.delete(other.seq);
      return index;
    },
  };
}

/** The key of the next timer among the messages. */
const TIMER = -1;

/**
 * Chooses each candidate with the same probability at each step; a near timer is a candidate.
 *
 * @example
 * ```ts
 * import { random } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const strategy = random();
 * const candidates = Array.from({ length: 8 }, (_, seq) => (
 *   { actor: "a", lane: "data", from: `sender-${seq}`, type: "Note", seq, nth: 0 } as const
 * ));
 * const play = () => {
 *   strategy.begin({ seed: 1, run: 0, expectedSteps: 8 });
 *   return candidates.map((_, step) => strategy.choose(candidates, step, () => 0));
 * };
 * assert.deepEqual(play(), play());
 * assert.ok(new Set(play()).size > 2);
 * ```
 */
export function random(): Strategy {
  let next: () => number;
  return {
    name: "random",
    begin({ seed }) {
      next = substream(seed, "random");
      return true;
    },
    choose({ length }, _step, _state, timer) {
      if (timer !== "near") return length === 1 ? 0 : Math.floor(next() * length);
      const choice = Math.floor(next() * (length + 1));
      return choice === length ? WAIT : choice;
    },
  };
}

/**
 * FIFO order in the first run, then the other strategies in turn.
 *
 * @param others at least one. Default: `random`, `pos`, `pct(3)` and `delay(2)`.
 *
 * @example
 * ```ts
 * import { portfolio } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const strategy = portfolio();
 * const names = [0, 1, 2, 3, 4, 5].map((run) => {
 *   strategy.begin({ seed: run, run, expectedSteps: 100 });
 *   return strategy.name;
 * });
 * assert.deepEqual(names, ["fifo", "random", "pos", "pct(3)", "delay(2)", "random"]);
 * ```
 */
export function portfolio(
  others: readonly Strategy[] = [random(), pos(), pct(3), delay(2)],
): Strategy {
  let current: Strategy = fifo();
  return {
    get name() {
      return current.name;
    },
    begin(start) {
      current = start.run === 0 ? fifo() : others[(start.run - 1) % others.length]!;
      return current.begin(start);
    },
    choose: (candidates, step, state, timer) => current.choose(candidates, step, state, timer),
    get deviations() {
      return current.deviations;
    },
    end: (state) => current.end?.(state),
  };
}

/**
 * FIFO order except for some steps. Indices out of range are ignored, so any part of a list of
 * deviations is a valid order, which makes runs easy to shrink.
 *
 * @param deviations the differences, in any order.
 *
 * @example
 * ```ts
 * import { deviate } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const message = { actor: "a", lane: "data", type: "Note", nth: 0 } as const;
 * const both = [{ ...message, from: "b", seq: 0 }, { ...message, from: "c", seq: 1 }];
 * const strategy = deviate([{ step: 7, choice: 1 }]);
 * assert.equal(strategy.choose(both, 6, () => 0), 0);
 * assert.equal(strategy.choose(both, 7, () => 0), 1);
 * assert.equal(strategy.choose([both[0]!], 7, () => 0), 0);
 * ```
 */
export function deviate(deviations: readonly Deviation[]): Strategy {
  const byStep = Map.groupBy(deviations, ({ step }) => step);
  let order = new DelayedOrder(), applied: Deviation[] = [];
  /** The current step, and its remaining deviations. */
  let current = -1, here: Deviation[] = [], waited = 0;
  return {
    name: "deviate",
    get deviations() {
      return applied;
    },
    begin() {
      order = new DelayedOrder();
      applied = [];
      current = -1;
      return true;
    },
    choose(candidates, step, _state, timer = "none") {
      if (step !== current) [current, here, waited] = [step, [...byStep.get(step) ?? []], 0];
      let choice: number | undefined;
      for (let deviation; (deviation = here[0]); here.shift()) {
        if ("wait" in deviation) {
          if (timer !== "none" && waited++ < deviation.wait) return addWait(applied, step), WAIT;
          waited = 0;
          continue;
        }
        const index = "late" in deviation ? deviation.late : deviation.choice;
        if (index >= candidates.length) continue;
        applied.push(deviation);
        if ("late" in deviation) order.put(candidates[index]!);
        else choice = index;
      }
      return choice ?? order.first(candidates);
    },
  };
}

/**
 * Thrown when a run differs from the recorded one.
 *
 * @example
 * ```ts
 * import { ReplayError } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const error = new ReplayError(7, "2 candidates", "1 candidate", ["a < b#0 Note"]);
 * assert.equal(
 *   error.message,
 *   "Cannot replay step 7: it must be 2 candidates, received 1 candidate; runnable: a < b#0 Note",
 * );
 * ```
 */
export class ReplayError extends Error {
  /** The name of the class, for code that cannot use `instanceof`. */
  override readonly name = "ReplayError";
  /**
   * Creates the error of the first difference.
   *
   * @param step number of the step.
   * @param expected the recorded value.
   * @param received the value of this run.
   * @param runnable the messages that could be handled.
   */
  constructor(
    readonly step: number,
    readonly expected: string,
    readonly received: string,
    readonly runnable: readonly string[] = [],
  ) {
    const who = runnable.length > 0 ? `; runnable: ${runnable.join(", ")}` : "";
    super(`Cannot replay step ${step}: it must be ${expected}, received ${received}${who}`);
  }
}

/** Returns the actor and the message of a candidate in short form. */
export const describeCandidate = ({ from, nth, ...candidate }: Candidate): string =>
  stepName({ ...candidate, from: `${from}#${nth}` });

/**
 * The exact choices of a recorded run. The replay fails at the first step with different candidates.
 *
 * @param steps the run; after its end, the replay continues in FIFO order.
 *
 * @example
 * ```ts
 * import { ReplayError, replayOf } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const message = { actor: "a", lane: "data", type: "Note", seq: 0, nth: 0 } as const;
 * const step = { n: 0, isolate: 0, t: 0, actor: "a", from: "b#0", type: "Note", payload: "",
 *   choice: 0, arity: 1, did: [], chain: "", hash: "" };
 * const strategy = replayOf([step]);
 * assert.equal(strategy.choose([{ ...message, from: "b" }], 0, () => 0), 0);
 * assert.throws(() => strategy.choose([{ ...message, from: "c" }], 0, () => 0), ReplayError);
 * ```
 */
export function replayOf(steps: readonly StepRecord[]): Strategy {
  let current = -1, waits = 0;
  return {
    name: "replay",
    begin() {
      current = -1;
      return true;
    },
    choose(candidates, step) {
      const record = steps[step];
      if (!record) return 0;
      if (step !== current) [current, waits] = [step, record.waits ?? 0];
      if (waits-- > 0) return WAIT;
      const { choice = 0, arity = 0 } = record, { length } = candidates;
      const runnable = candidates.map(describeCandidate), received = runnable[choice] ?? "nobody";
      const differs = (one: string, other: string) => new ReplayError(step, one, other, runnable);
      const expected = stepName(record);
      if (received !== expected) throw differs(expected, received);
      if (length !== arity) throw differs(`one of ${arity} candidates`, `one of ${length}`);
      return choice;
    },
  };
}
