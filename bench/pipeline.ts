/**
 * Two workers against one, and one worker against the serial loop.
 *
 * @module
 */

import type { DeviceName } from "../kernels/mod.ts";
import { measureBalance } from "./balance.ts";
import { benchDevices } from "./support/devices.ts";
import { type BenchEngine, openBenchEngine } from "./support/engine.ts";
import type { Row } from "./support/row.ts";
import { interleave, type Round, spread, spreadOf } from "./support/timing.ts";

/** Micro-batches of a step, N. */
const MICRO_BATCHES = 8;
const WORKERS = 2;

/** The share of its time that a worker of 1F1B waits: (D − 1) / (N + D − 1). */
const BUBBLE_RATIO = (WORKERS - 1) / (MICRO_BATCHES + WORKERS - 1);

/** The steps that are compared. `twins` is one worker with a second, independent one beside it. */
type StepRound = Round<"serial" | "one" | "two" | "twins">;

async function timeSteps(device: DeviceName): Promise<StepRound[]> {
  const open = (workers: number) =>
    openBenchEngine({ device, workers, microBatches: MICRO_BATCHES });
  await using serial = await open(0);
  await using one = await open(1);
  await using twin = await open(1);
  await using two = await open(WORKERS);
  const timed = ({ step }: BenchEngine) => async () => void await step();
  const twins = async () => void await Promise.all([one.step(), twin.step()]);
  return await interleave(
    { serial: timed(serial), one: timed(one), two: timed(two), twins },
    device === "native" ? { rounds: 11 } : { rounds: 5, warmup: 1 },
  );
}

/** One worker's time, spread over the workers without loss but for the bubble. */
const ideal = (oneWorkerMs: number) => oneWorkerMs / WORKERS / (1 - BUBBLE_RATIO);

/**
 * What uneven stages leave of the ideal. 1F1B fills and drains through every stage once; in between,
 * the slowest stage sets the pace.
 */
function balanceLimit(shares: readonly number[]): number {
  const makespan = (MICRO_BATCHES - 1) * Math.max(...shares) + 1;
  return ideal(MICRO_BATCHES) / makespan;
}

async function measure(device: DeviceName): Promise<Row[]> {
  const shares = await measureBalance(device, WORKERS);
  const rounds = await timeSteps(device);
  const otherCores = rounds.flatMap((round) => round.otherCores ?? []);
  const row = (name: string, unit: string, measured: Row["measured"], more: Partial<Row> = {}) => ({
    name: `${device}: ${name}`,
    unit,
    ...measured && { measured },
    ...more,
  });
  const percent = (of: number, to: number) => 100 * of / to;
  const least = (name: "one" | "two") => Math.min(...rounds.map(({ ms }) => ms[name]));
  const fastest = percent(ideal(least("one")), least("two"));
  return [
    row("step, serial loop", "ms", spreadOf(rounds, ({ serial }) => serial)),
    row("step, one worker", "ms", spreadOf(rounds, ({ one }) => one)),
    row("step, two workers", "ms", spreadOf(rounds, ({ two }) => two)),
    row(
      "one worker ÷ serial loop − 1",
      "%",
      spreadOf(rounds, ({ one, serial }) => percent(one, serial) - 100),
      { target: { atMost: 2 } },
    ),
    row(
      "ideal ÷ two workers",
      "%",
      spreadOf(rounds, ({ one, two }) => percent(ideal(one), two)),
      { target: { atLeast: 85 }, note: `fastest step of each: ${fastest.toFixed(1)} %` },
    ),
    row("  at most, by the balance of stages", "%", spread([100 * balanceLimit(shares)]), {
      note: `work: ${shares.map((share) => `${(100 * share).toFixed(1)} %`).join(" and ")}`,
    }),
    row(
      "  at most, by the machine",
      "%",
      spreadOf(rounds, ({ one, twins }) => percent(one, twins)),
      { note: "a worker alone ÷ beside an independent one" },
    ),
    row(
      "  other programs meanwhile",
      "cores",
      otherCores.length > 0 ? spread(otherCores) : undefined,
    ),
  ];
}

/** Measures each device. */
export async function pipelineBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices();
  const rows = [...missing];
  for (const name of names) rows.push(...await measure(name));
  return rows;
}
