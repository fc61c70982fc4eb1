/**
 * Orders that are known: those of a run before, or what is left of them.
 *
 * @module
 */

import type { Candidate } from "../runtime/mod.ts";
import { substream } from "../runtime/world.ts";
import { stepName, type StepRecord } from "./recorder.ts";

/** First in, first out, except for messages that are late. */
class LateOrder {
  /** Places of late messages among each other, by the number of their enqueuing. */
  readonly #places = new Map<number, number>();

  /** Forgets which messages are late. */
  clear(): void {
    this.#places.clear();
  }

  /** Puts a message behind all others, also behind those that are late already. */
  put({ seq }: Candidate): void {
    this.#places.set(seq, this.#places.size);
  }

  /** Whether a message is late. */
  isLate({ seq }: Candidate): boolean {
    return this.#places.has(seq);
  }

  /** Index of the candidate whose turn it is. */
  first(candidates: readonly Candidate[]): number {
    if (this.#places.size === 0) return 0;
    const places = candidates.map(({ seq }) => this.#places.get(seq) ?? -1);
    return places.indexOf(Math.min(...places));
  }
}

/** A step at which the order was not plain. */
export type Deviation =
  /** The candidate of this index, 1 or more, was chosen. */
  | { readonly step: number; readonly choice: number }
  /** The candidate of this index was put behind all others, and stays there. */
  | { readonly step: number; readonly late: number }
  /** So many timers, 1 or more, fired before, though something could be handled. */
  | { readonly step: number; readonly wait: number };

/** The timer that fires next: there is none, or it may fire before what can be handled now
 * (`near`), or that would take longer than a message may wait (`far`). */
export type NextTimer = "none" | "near" | "far";

/** What a strategy knows of a run when that begins. */
export interface RunStart {
  /** The seed of the run. */
  readonly seed: number;
  /** Which run of the exploration it is, from 0. */
  readonly run: number;
  /** Choices that the run before took, settled steps not counted, or a guess. */
  readonly expectedSteps: number;
}

/**
 * Decides the order of a run, one step at a time.
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
  /** As it stands in reports and journals. */
  readonly name: string;
  /** Goes through all runs there are, so that each must be of one seed and without faults. */
  readonly isExhaustive?: true;
  /** A run begins. False: there is nothing left to explore. */
  begin(start: RunStart): boolean;
  /**
   * Picks the index of a candidate, or {@linkcode PRUNE} or {@linkcode WAIT}.
   *
   * @param candidates in canonical order: 0 is what happens without a strategy.
   * @param step counts the steps of this run, those included that nobody chose. After a
   * {@linkcode WAIT} it is the same again.
   * @param state the digest of the whole state, made when asked for.
   * @param timer whether a {@linkcode WAIT} is a fair choice: it should be made only when `near`.
   * Default `none`.
   */
  choose(
    candidates: readonly Candidate[],
    step: number,
    state: () => number,
    timer?: NextTimer,
  ): number;
  /** Where the order was not plain, if the strategy can say it in fewer words than one choice for
   * each step. */
  readonly deviations?: readonly Deviation[] | undefined;
  /** What the actor at work reads from the clock, where that is known from a run before. */
  reads?(): number | undefined;
  /** A run has ended: it failed, or nobody can do anything. */
  end?(state: () => number): void;
}

/** A choice that ends the run, as the rest of it is known. */
export const PRUNE: number = -1;

/** A choice to handle nothing before the next timer. Where there is no timer, nothing happens any
 * more. */
export const WAIT: number = -2;

/** Guess of {@linkcode RunStart.expectedSteps} for a first run. */
export const FIRST_EXPECTED_STEPS = 256;

/** Checks the number that a strategy is made with. @throws {RangeError} */
function checkPositive(strategy: string, name: string, value: number): void {
  if (Number.isSafeInteger(value) && value >= 1) return;
  throw new RangeError(
    `Cannot explore by ${strategy}: ${name} must be a positive integer, received ${value}`,
  );
}

/** Notes that one more timer fires before a step. */
export function addWait(deviations: Deviation[], step: number): void {
  const last = deviations.at(-1), isSame = last && "wait" in last && last.step === step;
  if (isSame) deviations.pop();
  deviations.push({ step, wait: isSame ? last.wait + 1 : 1 });
}

/**
 * Plain order but for `delays` moments: there the message whose turn it is goes behind all others,
 * and behind the timers that are near.
 * Few delays find most bugs, and what they find is close to plain order, so easy to read.
 *
 * Emmi, Qadeer, Rakamarić: Delay-Bounded Scheduling, POPL 2011, section 2. The moments are drawn
 * here, where the paper tries all.
 *
 * @param delays how many times a message is put back, 1 or more.
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
  const order = new LateOrder();
  let moments: number[], choices: number, deviations: Deviation[] = [];
  return {
    name: `delay(${delays})`,
    get deviations() {
      return deviations;
    },
    begin({ seed, expectedSteps }) {
      const next = substream(seed, "delay");
      order.clear();
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
      if (timer !== "near" || !order.isLate(candidates[first]!)) return first;
      addWait(deviations, step);
      return WAIT;
    },
  };
}

/** {@linkcode dfs}, and what it has found. */
export interface Dfs extends Strategy {
  /** Distinct states met so far, those at the end of a run included. */
  readonly states: number;
}

/** A choice on the path of the run. */
interface Turn {
  choice: number;
  readonly candidates: number;
  /** The candidates, and the next timer if that is near. */
  readonly arity: number;
}

/**
 * Every order, depth first, but for states met before: from there on everything is known. It needs
 * actors that expose all of their state ({@linkcode Context.expose}); the queues, timers and
 * questions are the system's own and always count. A run repeats the path to where it
 * branches off, as an actor's state cannot be copied. All runs are of one seed, and without faults.
 *
 * @param limit most states.
 * @throws {RangeError} (from `choose`) when there are more.
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

  /** Adds a state, and returns whether it is new. */
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
 * Always the oldest message, control before data. One run says all that it can say.
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
 * Priorities drawn once, lowered at `depth - 1` random steps: a bug that needs `depth` events in
 * one order is found with probability at least 1/(n·k^(depth-1)) a run, for n threads and k steps.
 * The "threads" here are the edges, sender to actor, each a FIFO of its own, and the clock; one gets
 * its priority when it is first seen.
 *
 * Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with Probabilistic
 * Guarantees of Finding Bugs, ASPLOS 2010, section 3.
 *
 * @param depth number of ordering constraints that the bugs looked for need, 1 or more.
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

/** Stands for the clock among the edges. */
const CLOCK = "";

function edgeOf({ from, actor }: Candidate): string {
  return `${from}>${actor}`;
}

/** The index of the candidate with the highest priority. */
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
 * A random priority for each waiting message; the highest goes first, and those that race with it
 * (they wait for the same actor, so their order matters) draw again. It samples the partial
 * orders of a run more evenly than a random walk, and needs no parameter. A timer that is near has
 * a priority of its own, which races with nothing until it fires.
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

/** Stands for the next timer among the messages. */
const TIMER = -1;

/**
 * Each candidate with the same probability, at each step; a timer that is near counts as one.
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
 * Plain order once, then the others in turn, a run each.
 *
 * @param others one or more. Default: `random`, `pos`, `pct(3)` and `delay(2)`.
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
 * Plain order but for some steps. An index that is out of range counts for nothing, so any part of a
 * list of deviations is a legal order: that is what makes runs easy to shrink.
 *
 * @param deviations where the order is another, in any order.
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
  const order = new LateOrder(), byStep = Map.groupBy(deviations, ({ step }) => step);
  let applied: Deviation[] = [];
  /** The step that is chosen, and those of its deviations that are still to come. */
  let current = -1, here: Deviation[] = [], waited = 0;
  return {
    name: "deviate",
    get deviations() {
      return applied;
    },
    begin() {
      order.clear();
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
 * A run is not the one that was recorded.
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
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "ReplayError";
  /**
   * Says where and how the run differs first.
   *
   * @param step the step at which it differs.
   * @param expected what was recorded.
   * @param received what came.
   * @param runnable the messages that could have been handled.
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

/** A candidate as a few words: who would handle which message. */
export const describeCandidate = ({ from, nth, ...candidate }: Candidate): string =>
  stepName({ ...candidate, from: `${from}#${nth}` });

/**
 * The very choices of a recorded run, in strict mode: the first step at which the candidates are
 * not those of then ends the replay.
 *
 * @param steps the run; it may end before the replay does, which then goes on in plain order.
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
