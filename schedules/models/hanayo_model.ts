/** Hanayo's bubble ratio (section 3.4): what the paper prints, and what is true. */

import { checkModel } from "./link_model.ts";

/** What the ratio depends on. */
export interface HanayoStep {
  /** P: workers, and micro-batches of a round. */
  readonly workers: number;
  /** W: waves. */
  readonly waves: number;
  /** K: rounds of P micro-batches in a step; 1 unless given. */
  readonly rounds?: number;
  /** T_F: a worker's forwards of one micro-batch. */
  readonly forward: number;
  /** T_B: a worker's backwards of one micro-batch; at least T_F. */
  readonly backward: number;
  /** T_C: a message; 0 unless given. With one it takes one round. */
  readonly message?: number;
}

/**
 * The bubble ratio of Hanayo, as its schedule gives it: idle time
 * (P-1)/W·(T_B + (K-1)(T_B - T_F)) of a worker that computes for KP(T_F + T_B).
 *
 * Messages, in one round, add (4W(P-1) + 2(P-2))·T_C: 2W(P-1) hops down and as many up, and two for
 * each worker between the outer ones, where the legs of neighbouring micro-batches cross. That is
 * exact while a message is short beside the forward of a stage, and a lower bound beyond.
 *
 * The paper's Eq. 1 has T_B/2W where T_B/W must stand, so that its step is below a lower bound; its
 * terms with T_C are not the same above and below the bar.
 *
 * @throws {RangeError} if a number cannot be, or messages are given for more rounds than one.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { hanayoBubbleRatio } from "@troupe/troupe/schedules";
 *
 * const step = { workers: 8, waves: 2, forward: 1, backward: 2 };
 * strictEqual(hanayoBubbleRatio(step), 14 / 62); // (2P-2)/(3PW+2P-2)
 * ```
 */
export function hanayoBubbleRatio(step: HanayoStep): number {
  const { workers: P, waves: W, rounds = 1, forward, backward, message = 0 } = check(step);
  const isOneRound = message === 0 || rounds === 1;
  checkModel("the number of rounds, where messages take time,", rounds, isOneRound, "1");
  const waits = (P - 1) / W * (backward + (rounds - 1) * (backward - forward));
  const idle = waits + (P === 1 ? 0 : (4 * W * (P - 1) + 2 * (P - 2)) * message);
  return idle / (rounds * P * (forward + backward) + idle);
}

/**
 * The bubble ratio as the paper's Eq. 1 prints it, for the sake of comparison; at T_B = 2T_F without
 * messages (2P-2)/(3PW+P-1).
 *
 * @throws {RangeError} if a number cannot be, there is one worker, or there is more than one round.
 *
 * @example
 * ```ts
 * import { ok } from "node:assert/strict";
 * import { hanayoBubbleRatio, hanayoPrintedRatio } from "@troupe/troupe/schedules";
 *
 * const step = { workers: 8, waves: 2, forward: 1, backward: 2 };
 * ok(hanayoPrintedRatio(step) > hanayoBubbleRatio(step));
 * ```
 */
export function hanayoPrintedRatio(step: HanayoStep): number {
  const { workers: P, waves: W, rounds = 1, forward, backward, message = 0 } = check(step);
  checkModel("the number of workers", P, P > 1, "at least 2");
  checkModel("the number of rounds", rounds, rounds === 1, "1");
  const above = backward / W + (1 + 2 * W + 2 / P + (P - 2) / 3) * message;
  const below = P / (P - 1) * forward + (1 / (2 * W) + P / (P - 1)) * backward +
    ((P - 2) / 2 + 4 * W) * message;
  return above / below;
}

function check(step: HanayoStep): HanayoStep {
  for (const name of ["workers", "waves", "rounds"] as const) {
    const value = step[name] ?? 1;
    const isCount = Number.isInteger(value) && value >= 1;
    checkModel(`the number of ${name}`, value, isCount, "a whole number from 1");
  }
  const { forward, backward, message = 0 } = step;
  checkModel("a forward", forward, forward > 0, "more than 0");
  checkModel("a backward", backward, backward >= forward, "at least a forward");
  checkModel("a message", message, message >= 0, "at least 0");
  return step;
}
