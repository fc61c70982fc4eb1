/**
 * Two workers against one, and one worker against the serial loop.
 *
 * @module
 */

import type { DeviceName } from "../../kernels/mod.ts";
import { benchDevices } from "../support/devices.ts";
import { type BenchEngine, openBenchEngine } from "../support/engine.ts";
import type { Row } from "../support/row.ts";
import { interleave, type Round, spread, spreadOf } from "../support/timing.ts";
import { SMALL } from "../support/workload.ts";
import { measureLimits } from "./balance.ts";
import { limitRows } from "./limit_rows.ts";
import { lostMs } from "./lost_time.ts";

/** Micro-batches of a step, N. */
const MICRO_BATCHES = 8;
const WORKERS = 2;
const SCHEDULE = "1f1b";

/** The steps that are compared. `twins` is one worker with a second, independent one beside it. */
type StepRound = Round<"serial" | "one" | "two" | "twins">;

/** Rounds, and for each step of two workers the share that was lost between its actions. */
async function timeSteps(device: DeviceName): Promise<{ rounds: StepRound[]; lost: number[] }> {
  const run = { device, microBatches: MICRO_BATCHES, schedule: SCHEDULE } as const;
  const open = (workers: number) => openBenchEngine({ ...run, workers, isTraced: workers > 1 });
  await using serial = await open(0);
  await using one = await open(1);
  await using twin = await open(1);
  await using two = await open(WORKERS);
  const timed = ({ step }: BenchEngine) => async () => void await step();
  const twins = async () => void await Promise.all([one.step(), twin.step()]);
  const lost: number[] = [];
  const traced = async () => {
    const start = performance.now(), { traces } = await two.outcome();
    const ms = performance.now() - start;
    lost.push(lostMs(traces) / ms);
    return ms;
  };
  const rounds = await interleave(
    { serial: timed(serial), one: timed(one), two: traced, twins },
    device === "native" ? { rounds: 11 } : { rounds: 5, warmup: 1 },
  );
  return { rounds, lost };
}

async function measure(device: DeviceName): Promise<Row[]> {
  const limits = await measureLimits({
    device,
    workload: SMALL,
    schedule: SCHEDULE,
    workers: WORKERS,
    microBatches: MICRO_BATCHES,
    rounds: 9,
  });
  const { rounds, lost } = await timeSteps(device);
  const otherCores = rounds.flatMap((round) => round.otherCores ?? []);
  const row = (name: string, unit: string, measured: Row["measured"], more: Partial<Row> = {}) => ({
    name: `${device}: ${name}`,
    unit,
    ...measured && { measured },
    ...more,
  });
  const least = (name: "one" | "serial") => Math.min(...rounds.map(({ ms }) => ms[name]));
  const fastest = 100 * (least("one") / least("serial") - 1);
  return [
    row("step, serial loop", "ms", spreadOf(rounds, ({ serial }) => serial)),
    row("step, one worker", "ms", spreadOf(rounds, ({ one }) => one)),
    row("step, two workers", "ms", spreadOf(rounds, ({ two }) => two)),
    row(
      "one worker ÷ serial loop − 1",
      "%",
      spreadOf(rounds, ({ one, serial }) => 100 * (one / serial - 1)),
      { target: { atMost: 1 }, note: `fastest step of each: ${fastest.toFixed(1)} %` },
    ),
    ...limitRows(rounds.map(({ ms }) => ms), limits, WORKERS).map((one) => ({
      ...one,
      name: `${device}: ${one.name}`,
    })),
    row("  of that, between actions", "%", spread(lost.map((share) => 100 * share)), {
      note: "messages, their copies and what else no action's own duration explains",
    }),
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
