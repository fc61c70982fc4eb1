/**
 * A step of several workers, beside what its schedule, its stages and the machine let it be.
 *
 * [Note: the limit of a step] One worker's step is spread over the workers but for the bubble: the
 * ideal. Stages that are not alike leave less of it; so does a machine on which a worker is slower
 * when another one works beside it (they share caches and memory, and the clock may fall). The limit
 * is what all three leave; what the step takes beyond it is messages, copies and waiting.
 *
 * @module
 */

import type { Row } from "../support/row.ts";
import { spread } from "../support/timing.ts";
import type { ScheduleLimits } from "./balance.ts";

/** Milliseconds of a round: one worker, that beside an independent one, and the two that share. */
export interface LimitRound {
  readonly one: number;
  readonly twins: number;
  readonly two: number;
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** The rows, from some rounds and what was measured of the stages. */
export function limitRows(
  rounds: readonly LimitRound[],
  { bubble, balance, ofOneWorker, shares }: ScheduleLimits,
  workers: number,
): Row[] {
  const ideal = (one: number) => one / workers / (1 - bubble);
  const beyond = ({ two, twins }: LimitRound) => 100 * (two / (twins * ofOneWorker) - 1);
  const least = (key: keyof LimitRound) => Math.min(...rounds.map((round) => round[key]));
  const fastest: LimitRound = { one: least("one"), twins: least("twins"), two: least("two") };
  return [
    {
      name: "ideal ÷ two workers",
      unit: "%",
      measured: spread(rounds.map(({ one, two }) => 100 * ideal(one) / two)),
      target: { atLeast: 85 },
      note: `of fastest steps ${percent(ideal(fastest.one) / fastest.two)}; bubble ${
        percent(bubble)
      } of a worker's time`,
    },
    {
      name: "  at most, by the balance of stages",
      unit: "%",
      measured: spread([100 * balance]),
      note: `work: ${shares.map(percent).join(", ")}`,
    },
    {
      name: "  at most, by the machine",
      unit: "%",
      measured: spread(rounds.map(({ one, twins }) => 100 * one / twins)),
      note: "a worker alone ÷ beside an independent one",
    },
    {
      name: "two workers ÷ what both leave − 1",
      unit: "%",
      measured: spread(rounds.map(beyond)),
      target: { atMost: 3 },
      note: `of fastest steps ${beyond(fastest).toFixed(1)} %`,
    },
  ];
}
