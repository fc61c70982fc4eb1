/**
 * Measures message-driven schedules next to fixed 1F1B on worker threads, whose actions take the times
 * that the simulator draws, and prints the simulated ratio beside the measured one.
 *
 * @module
 */

import { compileRun } from "../actors/run/compile.ts";
import { openPipeline } from "../actors/run/pipeline.ts";
import { prepareSimulation } from "../actors/simulated_training/simulated_training.ts";
import { lengthOf, longest, modelOf } from "../examples/multimodal.ts";
import { mebibytes, slicesOf, totalBytes } from "../kernels/internal.ts";
import { type Batch, compileModel, type StageProgram } from "../kernels/mod.ts";
import { ifServed, readCandidate, readScenario } from "../schedules/internal.ts";
import {
  createSchedule,
  modelOfCosts,
  scheduleDefinitions,
  type ScheduleOptions,
  simulateStep,
  tryCandidates,
} from "../schedules/mod.ts";
import type { Emulated } from "./emulated_stage.ts";
import { type Row, valueRow } from "./report.ts";
import { roundsWithin, spread } from "./timing.ts";

/** The scenario in which stages and micro-batches have the work of `examples/multimodal.ts`. */
const MODULES = "modules";

const SCENARIOS =
  `none,uniform:0.1,lognormal:0.3,slow:1.5,stages:0.3,multimodal:0.2x3,lengths:4,${MODULES}`;

/** Compared with 1F1B. */
const CANDIDATES = ["fifo", "bfw", "bfw-v:1.5D"];

/** Workers; each has four micro-batches. */
const DEPTHS = [4, 8];

/** Long enough for the messages between actions, also where eight workers share two cores. */
const UNIT_MS = 50;

/** Steps of a case, each with its own draws. */
const DRAWS = 3;

/**
 * Returns the times of steps on worker threads, after one step that warms up.
 *
 * @param run the schedule that runs.
 */
async function stepTimes(
  emulated: Emulated,
  draws: number,
  run: Pick<Emulated, "schedule" | "options"> = emulated,
): Promise<number[]> {
  const { schedule, options, options: { workers, microBatches, sizes = [] } } = run;
  const plan = { schedule, options, workers, microBatches, replicas: 1, steps: 1 + draws };
  const { options: prepared, requests } = prepareSimulation(plan);
  const batches = requests.flatMap(({ microBatches }) => microBatches);
  const sizeOf = (batch: Batch) => sizes[batches.indexOf(batch) % microBatches]!;
  const engineOptions = { ...prepared, ...sizes.length > 0 && { sizeOf } };
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
async function measure(workers: number, send: number, scenario: string): Promise<Row[]> {
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
    const title = `${name} ÷ 1f1b, ${workers} workers, ${scenario}`;
    const note = `simulated ${trials[i + 1]!.speedup.mean.toFixed(3)} (send ${send.toFixed(3)})`;
    rows.push(valueRow(title, "×", times.map((ms, draw) => fixed[draw]! / ms), { note }));
  }
  return rows;
}

/** The modules of the example as work of emulated workers. */
function openModules(workers: number, send: number) {
  const size = sizeOf(workers), model = modelOf(longest);
  const program = compileModel(model, "none", { lengths: true });
  const workOf = (part: StageProgram, kind: "forward" | "backward", length: number) =>
    slicesOf(part)[longest - length]!.reduce((sum, { program }) => sum + program.cost[kind], 0);
  const loads = Array.from({ length: size.microBatches }, (_, microBatch) => {
    const length = lengthOf(microBatch);
    const [F, I] = (["forward", "backward"] as const)
      .map((kind) => workOf(program, kind, length) / workOf(program, kind, longest));
    return { F: F!, I: I!, W: I!, send: 1, bytes: length / longest };
  });
  const load = loads.reduce((sum, { F }) => sum + F, 0) / size.microBatches;
  const scale = UNIT_MS * workers / (load * workOf(program, "forward", longest));
  /** Cuts the model into the stages of a schedule as a run does; simulates a step, plans memory. */
  const open = (schedule: string, more: Partial<ScheduleOptions> = {}) => {
    const options = { ...size, ...more }, made = createSchedule(schedule, options);
    const compiled = compileRun({ model, lengths: true }, made, undefined, () => program);
    const times = (kind: "forward" | "backward") =>
      compiled.programs.map((stage) => scale * workOf(stage, kind, longest));
    const costs = { forward: times("forward"), backward: times("backward"), send: send * UNIT_MS };
    const stepMs = simulateStep({ ...modelOfCosts(made, costs), loads }).makespanMs;
    const bytes = Math.max(...compiled.memory.map(({ device }) => totalBytes(device)));
    return { schedule, options, made, costs, stepMs, bytes };
  };
  return { loads, open };
}

/** The schedules with lists that can train the example; the search knows the costs of its stages. */
function listsOf({ open }: ReturnType<typeof openModules>) {
  const searched = { chunks: 1, costs: open("1f1b").costs };
  return scheduleDefinitions.flatMap(({ name }) => {
    // Undefined if it has too many stages, or cuts sequences.
    const one = ifServed(() => open(name, name === "search" ? searched : {}));
    return one?.made.lists && one.made.updates === "flush" ? [one] : [];
  });
}

/** Measures BFW with a limit in bytes next to the list that is the best in its memory, and of all. */
async function measureModules(workers: number, send: number): Promise<Row[]> {
  const draws = roundsWithin(DRAWS), modules = openModules(workers, send), { loads } = modules;
  const sizes = loads.map(({ bytes }) => bytes), limits = { limitBy: "bytes", sizes } as const;
  const free = modules.open("message-driven", { ...limits, activationLimit: workers });
  const timesOf = ({ costs: { forward, backward }, ...run }: typeof free) => {
    const options = { ...sizeOf(workers), workers: forward.length };
    const shared = { scenario: "none", seed: 0, unitMs: UNIT_MS, costs: { forward, backward } };
    return stepTimes({ ...shared, schedule: "gpipe", options, loads }, draws, run);
  };
  const lists = listsOf(modules).sort((a, b) => a.stepMs - b.stepMs), rows: Row[] = [];
  const own = await timesOf(free), fitting = lists.filter(({ bytes }) => bytes <= free.bytes);
  for (const list of new Set([fitting[0]!, lists[0]!])) {
    const times = await timesOf(list), [ours, theirs] = [free, list].map((one) => one.bytes);
    const title = `bfw by bytes ÷ ${list.schedule}, ${workers} workers, ${MODULES}`;
    rows.push(valueRow(title, "×", own.map((ms, draw) => times[draw]! / ms), {
      note: `simulated ${(list.stepMs / free.stepMs).toFixed(3)} (send ${send.toFixed(3)}), ` +
        `planned ${mebibytes(ours!)} and ${mebibytes(theirs!)} a worker`,
    }));
  }
  return rows;
}

/** Measures the scenarios of `--emulate-load`. */
export async function readinessBench(scenarios = SCENARIOS): Promise<Row[]> {
  const names = scenarios.split(","), rows: Row[] = [];
  for (const name of names) {
    if (name === MODULES || readScenario(name)) continue;
    throw new RangeError(
      `Cannot emulate a load: it must be a scenario or ${MODULES}, received ${name}`,
    );
  }
  for (const workers of DEPTHS) {
    const send = await sendTime(workers);
    for (const name of names) {
      const measured = name === MODULES ? measureModules : measure;
      rows.push(...await measured(workers, send, name));
    }
  }
  return rows;
}
