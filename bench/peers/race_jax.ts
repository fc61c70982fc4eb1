/**
 * Forward and backward of a micro-batch in jax-js, beside Troupe's devices; and its pool of two
 * workers beside two of Troupe's.
 *
 * @module
 */

import { type DeviceName, openDevice } from "../../kernels/mod.ts";
import { fastestSchedule } from "../pipeline/fastest_schedule.ts";
import { benchDevices } from "../support/devices.ts";
import { openBenchEngine } from "../support/engine.ts";
import type { Row } from "../support/row.ts";
import { type BenchStage, openBenchStage } from "../support/stage.ts";
import { interleave, spreadOf } from "../support/timing.ts";
import { SMALL, tokensOf } from "../support/workload.ts";
import { firstLoss, openJax } from "./jax.ts";

const ALONE = "jax-js, wasm", POOL = "jax-js, wasm, pool of two";
const TWO = "wasm, two workers";

/** Micro-batches of a step of two workers, N. */
const MICRO_BATCHES = 8;

/** Steps of each schedule that is tried. */
const TRIED_STEPS = 3;

/** What wasm must be of jax-js, with as many threads. */
const TARGET = { atLeast: 1.3 } as const;

type Case = () => Promise<number | void>;

/** Opens the whole model on each device, and computes its loss. */
async function openStages(names: readonly DeviceName[], stack: AsyncDisposableStack) {
  const stages: { name: DeviceName; stage: BenchStage; loss: number }[] = [];
  for (const name of names) {
    const device = await openDevice(name);
    stack.defer(() => device.close());
    const stage = await openBenchStage(device);
    stages.push({ name, stage, loss: await stage.forwardBackward() });
  }
  return stages;
}

/** Passes of jax-js: forward and backward so many times. */
async function openPasses(pool: number, passes: number, stack: AsyncDisposableStack) {
  const jax = stack.use(await openJax({ backend: "wasm", pool }, SMALL));
  const loss = await firstLoss(jax);
  const run: Case = async () => {
    let sum = 0;
    for (let i = 0; i < passes; i++) sum += (await jax.step()).ms;
    return sum;
  };
  return { run, loss };
}

/** Measures all in the same rounds; where jax-js cannot be had, its rows say why. */
export async function raceJax(): Promise<Row[]> {
  const { names, missing } = await benchDevices(true), hasWasm = names.includes("wasm");
  await using stack = new AsyncDisposableStack();
  const stages = await openStages(names, stack);
  const alone = await openPasses(0, 1, stack), pool = await openPasses(2, MICRO_BATCHES, stack);
  const cases: Record<string, Case> = {};
  for (const { name, stage } of stages) {
    cases[name] = async () => void await stage.forwardBackward();
  }
  let schedule = "";
  if (hasWasm) {
    const run = { device: "wasm", workers: 2, microBatches: MICRO_BATCHES } as const;
    ({ schedule } = await fastestSchedule(run, TRIED_STEPS));
    const { step } = stack.use(await openBenchEngine({ ...run, schedule }));
    cases[TWO] = async () => void await step();
  }
  const peers = new Map([[ALONE, alone], [POOL, pool]]);
  for (const [name, { run, loss }] of peers) {
    if (typeof loss === "number") cases[name] = run;
  }
  const rounds = await interleave(cases, { rounds: 9, warmup: 1, isAlone: false });
  const passesOf = (name: string) => name === TWO || name === POOL ? MICRO_BATCHES : 1;
  const rate = (name: string): Row => {
    const loss = peers.get(name)?.loss;
    const title = name === TWO
      ? `${name}: step of ${MICRO_BATCHES}`
      : `${name}: forward and backward`;
    if (!(name in cases)) return { name, unit: "", note: `${loss}` };
    const apart = stages.map((one) => Math.abs(one.loss - Number(loss)));
    return {
      name: title,
      unit: "tokens/s",
      measured: spreadOf(rounds, (ms) => passesOf(name) * tokensOf(SMALL) / (ms[name]! / 1000)),
      ...loss !== undefined && { note: `losses differ by ${Math.max(...apart).toExponential(1)}` },
    };
  };
  const ratio = (ours: string, theirs: string): Row[] =>
    ours in cases && theirs in cases
      ? [{
        name: `${ours} ÷ ${theirs}`,
        unit: "×",
        measured: spreadOf(rounds, (ms) => ms[theirs]! / ms[ours]!),
        ...ours !== "native" && { target: TARGET },
        ...ours === TWO &&
          { note: `a whole step of ${schedule} against forward and backward alone` },
      }]
      : [];
  const shown = [...names, ...hasWasm ? [TWO] : [], ALONE, POOL];
  return [
    ...missing,
    ...shown.map(rate),
    ...names.flatMap((name) => ratio(name, ALONE)),
    ...ratio(TWO, POOL),
  ];
}
