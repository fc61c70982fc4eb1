/**
 * Orders that are known: those of a run before, or what is left of them.
 *
 * @module
 */

import type { Candidate } from "../../runtime/mod.ts";
import { stepName, type StepRecord } from "../journal/recorder.ts";
import { LateOrder } from "./late.ts";
import { addWait, type Deviation, type Strategy, WAIT } from "./strategy.ts";

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
