/**
 * Measures message-driven schedules next to fixed 1F1B on worker threads, whose actions take the times
 * that the simulator draws, and prints the simulated ratio beside the measured one.
 *
 * @module
 */

import { openPipeline } from "../actors/run/pipeline.ts";
import { prepareSimulation } from "../actors/simulated_training/simulated_training.ts";
import { tryCandidates } from "../schedules/mod.ts";
import { readCandidate } from "../schedules/internal.ts";
import type { Emulated } from "./emulated_stage.ts";
import type { Row } from "./report.ts";
import { roundsWithin, spread } from "./timing.ts";

const SCENARIOS = "none,uniform:0.1,lognormal:0.3,slow:1.5,stages:0.3,multimodal:0.2x3,lengths:4";

/** Compared with 1F1B. */
const CANDIDATES = ["fifo", "bfw", "bfw-v:1.5D"];

/** Workers; each has four micro-batches. */
const DEPTHS = [4, 8];

/** Long enough for the messages between actions, also where eight workers share two cores. */
const UNIT_MS = 50;

/** Steps of a case, each with its own draws. */
const DRAWS = 3;

/** Returns the times of steps on worker threads, after one step that warms up. */
async function stepTimes(emulated: Emulated, draws: number): Promise<number[]> {
  const { schedule, options } = emulated, { workers, microBatches } = options;
  const plan = { schedule, options, workers, microBatches, replicas: 1, steps: 1 + draws };
  const { options: engineOptions, requests } = prepareSimulation(plan);
  const module = new URL("emulated_stage.ts", import.meta.url);
  module.searchParams.set("emulated", JSON.stringify(emulated));
  const kernels = { module: module.href, export: "openEmulatedStage", moments: [] };
  const engine = await openPipeline({ ...engineOptions, kernels }, "worker");
  try {
    const times: number[] = [];
    for (const request of requests) {
      const begun = performance.now();
      await engine.step(request);
      times.push(performance.now() - begun);
    }
    return times.slice(1);
  } finally {
    await engine.close();
  }
}

const sizeOf = (workers: number) => ({ workers, microBatches: 4 * workers });

/**
 * Measures the time of a message in forwards: what 1F1B without variation takes longer than its
 * actions, divided by the number of messages that its step waits for.
 */
async function sendTime(workers: number): Promise<number> {
  const options = sizeOf(workers), draws = roundsWithin(DRAWS), probe = 0.01;
  const shared = { schedule: "1f1b", options, scenario: "none", seed: 0, unitMs: UNIT_MS };
  const measured = spread(await stepTimes(shared, draws)).median / UNIT_MS;
  const trials = tryCandidates([], options, { scenarios: ["none"], sends: [0, probe], draws: 1 });
  const [none, some] = trials.map(({ mean }) => mean);
  return Math.max(0, probe * (measured - none!) / (some! - none!));
}

/** Measures the candidates in one scenario. */
async function measure(workers: number, scenario: string, send: number): Promise<Row[]> {
  const size = sizeOf(workers), draws = roundsWithin(DRAWS);
  const shared = { scenario, seed: 0, unitMs: UNIT_MS };
  const timesOf = (schedule: string, options: object) =>
    stepTimes({ ...shared, schedule, options: { ...size, ...options } }, draws);
  const candidates = CANDIDATES.map((name) => readCandidate(name, workers)!);
  const trials = tryCandidates(candidates, size, {
    scenarios: [scenario],
    sends: [send],
    seed: 1,
    draws,
  });
  const fixed = await timesOf("1f1b", {}), rows: Row[] = [];
  for (const [i, { name, options }] of candidates.entries()) {
    const times = await timesOf("message-driven", options!);
    rows.push({
      name: `${name} ÷ 1f1b, ${workers} workers, ${scenario}`,
      unit: "×",
      measured: spread(times.map((ms, draw) => fixed[draw]! / ms)),
      note: `simulated ${trials[i + 1]!.speedup.mean.toFixed(3)} (send ${send.toFixed(3)})`,
    });
  }
  return rows;
}

/** Measures the scenarios of `--emulate-load`. */
export async function readinessBench(scenarios = SCENARIOS): Promise<Row[]> {
  const rows: Row[] = [];
  for (const workers of DEPTHS) {
    const send = await sendTime(workers);
    for (const name of scenarios.split(",")) rows.push(...await measure(workers, name, send));
  }
  return rows;
}
