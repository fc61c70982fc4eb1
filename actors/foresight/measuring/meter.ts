/**
 * Measures a machine in rounds: each round measures everything once, so that what is compared with
 * it can be measured in the same rounds, whatever the machine's speed does meanwhile.
 *
 * @module
 */

import { cpus } from "node:os";
import {
  ADAMW_DEFAULTS,
  assertMachineHolds,
  compileModel,
  type Model,
  type ModelProgram,
  planMemory,
  type Recompute,
} from "../../../kernels/mod.ts";
import { totalMemory } from "../../run/memory/memory_plan.ts";
import { ISOLATE_BYTES } from "../../run/options/sizes.ts";
import { createSystem, type PlaceName } from "../../runtime/mod.ts";
import type { RunDevices } from "../../run/options/run_devices.ts";
import { calibrate, type CalibratedLoad } from "./calibrate.ts";
import { actionTimes, layerCosts, loadCosts, loadNotes, spreads } from "./make_profile.ts";
import { variationOf } from "../profile/variation.ts";
import { linkOf, openLink, type Trips } from "./measure_links.ts";
import {
  openCopiesRun,
  openTinyRun,
  overheadsOf,
  type PlaceOptions,
  reduceMs,
  sumCost,
  takeTinySteps,
  type TinySteps,
} from "./measure_overheads.ts";
import { type MeasuredRun, openMeasuredRun } from "./open_run.ts";
import { type LoadTimes, openProbes, type ProbedModel } from "./probe_layers.ts";
import {
  type Profile,
  PROFILE_FORMAT,
  PROFILE_VERSION,
  type ProfiledMachine,
} from "../profile/profile.ts";

/** What is measured, and where. */
export interface MeterOptions {
  /** What computes. */
  readonly device: RunDevices[0];
  /** The model whose layers are measured, for so many samples, compiled so. */
  readonly models: readonly {
    readonly model: Model;
    readonly microBatch: number;
    readonly recompute: Recompute;
  }[];
  /** The sizes of the model, for people to read. */
  readonly sizes: Readonly<Record<string, number>>;
  /** How many workers compute at once: each number is measured. */
  readonly loads: readonly number[];
  /** Where workers live. */
  readonly isolate: PlaceName;
  /** Transports whose messages are measured. */
  readonly links: readonly PlaceName[];
}

/** A machine that is being measured. */
export interface Meter extends AsyncDisposable {
  /** Measures everything once, layers for so many milliseconds for each model and load. */
  round(forMs: number): Promise<void>;
  /** Forgets what was measured so far. */
  reset(): void;
  /** What the rounds say. */
  profile(): Profile;
}

/** What the rounds have measured so far. */
const noRounds = (
  links: readonly PlaceName[],
  runs: readonly Pick<CalibratedLoad, "model" | "atOnce">[],
) => ({
  layers: [] as LoadTimes[],
  links: new Map(links.map((name): [PlaceName, Trips[]] => [name, []])),
  tiny: [] as TinySteps[],
  reduces: [] as number[],
  runs: runs.map(({ model, atOnce }): CalibratedLoad => ({ model, atOnce, steps: [] })),
});

/**
 * Opens a meter; its first round is for the machine to warm up.
 *
 * @throws {RangeError} when what is measured needs more memory than this machine has.
 */
export async function openMeter(options: MeterOptions): Promise<Meter> {
  const { device, loads, isolate, models: asked } = options;
  const programs = asked.map(({ model, recompute }) => compileModel(model, recompute));
  assertMachineHolds("Cannot measure", neededBytes(programs, loads));
  const stack = new AsyncDisposableStack(), system = stack.use(createSystem());
  const models = asked.map(({ microBatch, recompute }, i) => ({
    ...{ microBatch, recompute },
    program: programs[i]!,
  }));
  const probe = openProbes(system, { device, models, loads, isolate });
  const names = [...new Set([...options.links, isolate])];
  const links = names.map((name) => [name, openLink(system, name)] as const);
  const place: PlaceOptions = {
    device: device.name,
    runtime: isolate === "local" ? "local" : "workers",
    ...isolate !== "local" && { isolation: isolate },
  };
  const tiny = stack.use(await openTinyRun(place));
  const copies = Math.max(...loads) === 1
    ? undefined
    : stack.use(await openCopiesRun(place, asked[0]!.model));
  const runs: (Pick<CalibratedLoad, "model" | "atOnce"> & { readonly run: MeasuredRun })[] = [];
  for (const [index, { model, recompute }] of asked.entries()) {
    for (const atOnce of loads.filter((load) => load <= models[index]!.program.layers.length)) {
      // All of its workers have work most of the time.
      const size = { workers: atOnce, microBatches: 3 * atOnce, schedule: "1f1b", trace: true };
      const run = await openMeasuredRun({ ...place, model, recompute, ...size });
      runs.push({ model: index, atOnce, run: stack.use(run) });
    }
  }
  let rounds = noRounds(names, runs);
  const round = async (forMs: number) => {
    rounds.layers.push(...await probe(forMs));
    for (const [name, play] of links) rounds.links.get(name)!.push(await play());
    rounds.tiny.push(await takeTinySteps(tiny));
    if (copies) rounds.reduces.push(reduceMs((await copies.step()).traces));
    for (const [i, { run }] of runs.entries()) {
      rounds.runs[i]!.steps.push((await run.step()).traces);
    }
  };
  return {
    round,
    reset: () => void (rounds = noRounds(names, runs)),
    profile: () => ({
      ...profileOf(rounds, options, models),
      machine: thisMachine(),
      reduce: copies ? sumCost(programs[0]!, rounds.reduces) : { ms: 0, msPerMillion: 0 },
    }),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** Bytes of the models: the probes of each load have all of it, and so has the run of each load. */
function neededBytes(programs: readonly ModelProgram[], loads: readonly number[]): number {
  const slots = Math.max(...loads);
  const options = { optimizer: ADAMW_DEFAULTS, backward: "split", slots } as const;
  const isolates = 2 * slots + loads.reduce((sum, load) => sum + load, 0);
  return ISOLATE_BYTES * isolates +
    2 * loads.length * totalMemory(programs.map((program) => planMemory(program, options)));
}

function profileOf(
  { layers, links, tiny, runs }: ReturnType<typeof noRounds>,
  { device, isolate, sizes }: MeterOptions,
  models: readonly ProbedModel[],
): Omit<Profile, "machine" | "reduce"> {
  const costs = Object.fromEntries([...links].map(([name, trips]) => [name, linkOf(trips)]));
  const { dispatchMs, stepMs } = overheadsOf(tiny, costs[isolate]!.latencyMs);
  const facts = { device: device.name, sizes, models };
  const costsOf = (model: number) => layerCosts(layers.filter((one) => one.model === model), facts);
  const { loads, layers: calibrated } = calibrate({
    layers: models.map((_, model) => costsOf(model)),
    loads: loadCosts(layers),
    programs: models.map(({ program }) => program),
  }, runs);
  const most = Math.max(...loads.map(({ atOnce }) => atOnce));
  const spread = spreads(layers, models);
  const { atOnce: _, optimizer, ...closing } = loads.find(({ atOnce }) => atOnce === most)!;
  return {
    format: PROFILE_FORMAT,
    version: PROFILE_VERSION,
    source: "measured",
    layers: calibrated,
    variation: variationOf(actionTimes(layers)),
    spread,
    optimizer,
    links: costs,
    dispatchMs,
    closing: { ...closing, stepMs },
    loads,
    notes: loadNotes(spread),
  };
}

/** This machine, now. */
export function thisMachine(): ProfiledMachine {
  return {
    name: cpus()[0]?.model.trim() ?? "unknown",
    cores: navigator.hardwareConcurrency,
    system: `${Deno.build.os} ${Deno.build.arch}`,
    memoryBytes: Deno.systemMemoryInfo().total,
    deno: Deno.version.deno,
    load: Deno.loadavg()[0]!,
  };
}
