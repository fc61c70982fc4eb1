/**
 * Measures a machine in rounds: each round measures everything once, so that what is compared with
 * it can be measured in the same rounds, whatever the machine's speed does meanwhile.
 *
 * @module
 */

import { cpus } from "node:os";
import { ADAMW_DEFAULTS, compileModel, type Model, type Recompute } from "../../../kernels/mod.ts";
import { createSystem, type PlaceName } from "../../runtime/mod.ts";
import type { RunDevices } from "../../run/options/run_devices.ts";
import { actionTimes, handingMs, layerCosts, loadCosts } from "./make_profile.ts";
import { variationOf } from "../profile/variation.ts";
import { linkOf, openLink, type Trips } from "./measure_links.ts";
import {
  openCopiesRun,
  openTinyRun,
  overheadsOf,
  type PlaceOptions,
  takeTinySteps,
  type TinySteps,
} from "./measure_overheads.ts";
import { type LoadTimes, openProbes } from "./probe_layers.ts";
import { drawBatch, drawWeights } from "./probe_data.ts";
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
interface Rounds {
  readonly layers: LoadTimes[];
  readonly links: Map<PlaceName, Trips[]>;
  readonly tiny: TinySteps[];
  readonly reduces: number[];
}

const noRounds = (links: readonly PlaceName[]): Rounds => ({
  layers: [],
  links: new Map(links.map((name) => [name, []])),
  tiny: [],
  reduces: [],
});

/** Opens a meter; its first round is for the machine to warm up. */
export async function openMeter(options: MeterOptions): Promise<Meter> {
  const { device, loads, isolate, models: asked } = options;
  const stack = new AsyncDisposableStack(), system = stack.use(createSystem());
  const models = asked.map(({ model, ...about }) => {
    const program = compileModel(model, about.recompute);
    return { ...about, program, weights: drawWeights(program), fields: drawBatch(program) };
  });
  const request = { device, models, loads, optimizer: ADAMW_DEFAULTS, isolate };
  const probes = openProbes(system, request);
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
  let rounds = noRounds(names);
  const measure = async (forMs: number) => {
    rounds.layers.push(...await probes.measure(forMs));
    for (const [name, play] of links) rounds.links.get(name)!.push(await play());
    rounds.tiny.push(await takeTinySteps(tiny));
    if (copies) rounds.reduces.push(await copies.step());
  };
  const reset = () => void (rounds = noRounds(names));
  return {
    round: measure,
    reset,
    profile: () => ({
      ...profileOf(rounds, { ...options, models }),
      machine: thisMachine(),
      reduce: copies ? copies.costOf(rounds.reduces) : { ms: 0, msPerMillion: 0 },
    }),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

function profileOf(
  { layers, links, tiny }: Rounds,
  { device, isolate, sizes, models }: Pick<MeterOptions, "device" | "isolate" | "sizes"> & {
    readonly models: Parameters<typeof layerCosts>[1]["models"];
  },
): Omit<Profile, "machine" | "reduce"> {
  const costs = Object.fromEntries([...links].map(([name, trips]) => [name, linkOf(trips)]));
  const { dispatchMs, stepMs } = overheadsOf(tiny, costs[isolate]!.latencyMs);
  const loads = loadCosts(layers), most = Math.max(...loads.map(({ atOnce }) => atOnce));
  const { atOnce: _, optimizer, ...closing } = loads.find(({ atOnce }) => atOnce === most)!;
  return {
    format: PROFILE_FORMAT,
    version: PROFILE_VERSION,
    source: "measured",
    layers: layerCosts(layers, { device: device.name, sizes, models }),
    variation: variationOf(actionTimes(layers)),
    optimizer,
    links: costs,
    dispatchMs: dispatchMs + handingMs(layers),
    closing: { ...closing, stepMs },
    loads,
    notes: [],
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
