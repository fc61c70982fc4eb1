/**
 * The measured models and their costs.
 *
 * @module
 */

import type { RunOptions } from "../actors/options/train_options.ts";
import { openPipeline } from "../actors/run/pipeline.ts";
import { prepareRun } from "../actors/run/prepare.ts";
import { openSerial } from "../actors/run/serial.ts";
import { linesOf } from "../console/terminal.ts";
import { residentBytes } from "../console/train/memory_report.ts";
import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  type DeviceName,
  gpt2,
  type Gpt2Config,
  type Model,
  type Precision,
  type TokenBatch,
} from "../kernels/mod.ts";
import { initialValues } from "../kernels/layers/layer.ts";
import { openStage } from "../kernels/stage/stage.ts";
import { resolveDevice } from "../kernels/devices/table.ts";
import { substream } from "../kernels/random.ts";
import { webgpuAdapters } from "../kernels/devices/webgpu/adapters.ts";
import { reasonRow, type Row } from "./report.ts";

/**
 * Finds the devices that can be opened, and makes a row with the reason for each missing one.
 *
 * @param withGpu whether to look for a GPU; software adapters are ignored.
 */
export async function benchDevices(withGpu = false) {
  const names: DeviceName[] = [], missing: Row[] = [];
  for (const name of ["native", "wasm", ...withGpu ? ["webgpu"] as const : []] as const) {
    try {
      if (name === "webgpu") await mustHaveGpu();
      else await resolveDevice(name);
      names.push(name);
    } catch (error) {
      missing.push(reasonRow(name, error));
    }
  }
  return { names, missing };
}

/** Returns the rows of each device that can be opened, after the reasons for missing ones. */
export async function rowsOfDevices(
  measure: (name: DeviceName) => Promise<Row[]>,
  withGpu = false,
): Promise<Row[]> {
  const { names, missing: rows } = await benchDevices(withGpu);
  for (const name of names) rows.push(...await measure(name));
  return rows;
}

/** Throws without a GPU: a software adapter would take minutes, and says nothing about a GPU. */
async function mustHaveGpu(): Promise<void> {
  const { adapters } = await webgpuAdapters({ isHardwareOnly: true });
  if (adapters.length > 0) return;
  throw new Error("there is no GPU; `deno task bench gpu` measures software in its place, too");
}

/** A GPT-2, and the samples of its micro-batch. */
export interface Workload {
  readonly config: Gpt2Config;
  /** Samples of a micro-batch, B. */
  readonly microBatch: number;
}

/** A small GPT-2, the default on a CPU. */
export const SMALL: Workload = {
  config: { layers: 4, hidden: 256, heads: 4, seq: 128, vocab: 1024 },
  microBatch: 4,
};

/** GPT-2 small, for comparisons with PyTorch. */
export const GPT2_SMALL: Workload = {
  config: { layers: 12, hidden: 768, heads: 12, seq: 256, vocab: 50_257 },
  microBatch: 2,
};

/** Tokens of a micro-batch. */
export const tokensOf = ({ config, microBatch }: Workload): number => microBatch * config.seq;

/**
 * Floating-point operations of forward and backward for one token: 22.0 million of the small GPT-2.
 *
 * A block multiplies each token with 12·d² weights (3d² for q, k and v, d² for the projection, 4d²
 * up and 4d² down), two operations each; the head with V·d. Attention takes T·d for the scores and
 * T·d for the mixture, two operations each, *uncausal*: what the mask discards is counted, since it
 * is computed. The backward has two products for each one of the forward, hence the factor 3. Other
 * operations (normalization, GELU, softmax, the loss, the embedding) are not counted.
 */
function flopsPerToken(
  { config: { layers: L, hidden: d, seq: T, vocab: V } }: Workload,
): number {
  return 3 * (L * 12 * d * d * 2 + V * d * 2 + L * 4 * T * d);
}

/** Returns the GFLOP of one micro-batch, forward and backward. */
export const gflopOf = (workload: Workload): number =>
  flopsPerToken(workload) * tokensOf(workload) / 1e9;

/** Returns the model. */
export const benchModel = ({ config, microBatch }: Workload = SMALL): Model =>
  gpt2(config, microBatch);

const drawn = new WeakMap<Workload, ReadonlyMap<string, Float32Array>>();

/** Returns the initial weights by name. They are cached, as drawing those of GPT-2 small is slow. */
export function firstWeights(workload: Workload): ReadonlyMap<string, Float32Array> {
  return drawn.getOrInsertComputed(workload, () => {
    const { parameters } = compileModel(benchModel(workload), "none");
    return new Map(parameters.map(({ name, spec }) => [name, initialValues(spec, name, 1)]));
  });
}

/** Returns micro-batches of random tokens. */
export function benchBatches(count: number, seed = 1, workload: Workload = SMALL): TokenBatch[] {
  const generator = substream(seed, "bench tokens"), { vocab } = workload.config;
  const draw = () =>
    Int32Array.from({ length: tokensOf(workload) }, () => (generator.next() >>> 0) % vocab);
  return Array.from({ length: count }, () => ({ ids: draw(), targets: draw() }));
}

/** A learning rate with which no run diverges. */
export const LEARNING_RATE = 1e-4;

/** Options of an engine. */
export interface BenchRun {
  readonly device: DeviceName;
  /** Workers of the pipeline; 0: the serial loop. */
  readonly workers: number;
  /** Micro-batches of a step, N. */
  readonly microBatches: number;
  /** Default: 1F1B. */
  readonly schedule?: string;
  /** Default: the small GPT-2. */
  readonly workload?: Workload;
  /** Default: fp32. */
  readonly precision?: Precision;
  /** True if outcomes have traces. Default false. */
  readonly isTraced?: boolean;
  /** Other options of the run. */
  readonly more?: Partial<RunOptions>;
}

/** Opens an engine whose workers are threads, and which takes optimizer steps. */
export async function openBenchEngine(run: BenchRun) {
  const { device, workers, microBatches, precision = "fp32" } = run;
  const { schedule = "1f1b", workload = SMALL, isTraced = false, more } = run;
  const prepared = await prepareRun({
    model: benchModel(workload),
    data: [],
    steps: 1,
    microBatches,
    workers: Math.max(1, workers),
    runtime: workers === 0 ? "serial" : "workers",
    schedule,
    device,
    precision,
    optimizer: ADAMW_DEFAULTS,
    trace: isTraced,
    ...more,
  });
  const batches = benchBatches(prepared.microBatches, 1, workload);
  const predictions = prepared.microBatches * tokensOf(workload);
  const request = { microBatches: batches, predictions, learningRate: LEARNING_RATE, lossScale: 1 };
  const engine = workers === 0
    ? await openSerial(prepared)
    : await openPipeline(prepared, "worker");
  let steps = 0;
  const outcome = async () => {
    steps++;
    const result = await engine.step({ ...request, step: steps, update: steps });
    if (!result.isCommitted) throw new Error(`Cannot measure step ${steps}: it must be finite`);
    return result;
  };
  return {
    prepared,
    /** Takes the next step. */
    outcome,
    /** Takes the next step; returns the mean loss of its tokens. */
    async step() {
      const { losses } = await outcome();
      const sum = losses.reduce((all, one) => all + one.reduce((part, x) => part + x, 0), 0);
      return sum / predictions;
    },
    [Symbol.asyncDispose]: () => engine.close(),
  };
}

export type BenchEngine = Awaited<ReturnType<typeof openBenchEngine>>;

/** Lets `using` close a device. */
export const closing = (device: Device): Device & Disposable =>
  Object.assign(device, { [Symbol.dispose]: () => device.close() });

/** Returns a function that waits until a device has finished its queue. */
export function drainOf(device: Device): () => Promise<void> {
  const last = device.alloc("f32", []), into = new Float32Array(1);
  return async () => void await device.read(last, into);
}

/** Opens a model on a device: a stage with initial weights, and a micro-batch. */
export async function openBenchStage(
  device: Device,
  workload = SMALL,
  precision: Precision = "fp32",
) {
  const program = compileModel(benchModel(workload), "none", { precision });
  const stage = await openStage(device, program, { optimizer: ADAMW_DEFAULTS, backward: "whole" });
  const weights = firstWeights(workload);
  stage.load({ weights, moments: new Map() });
  const drain = drainOf(device), tokens = tokensOf(workload);
  const [fields] = benchBatches(1, 1, workload);
  const queue = async () => {
    const { output } = await stage.forward(0, undefined, fields!);
    await stage.backward(0, "B", undefined, 1 / tokens);
    return (output as Float32Array).reduce((sum, loss) => sum + loss, 0) / tokens;
  };
  let steps = 0;
  return {
    stage,
    /** Number of parameters. */
    parameters: [...weights.values()].reduce((sum, { length }) => sum + length, 0),
    /** Computes forward and backward of the micro-batch; returns its mean loss. */
    async forwardBackward() {
      const loss = await queue();
      await drain();
      return loss;
    },
    /** Computes a whole step of some micro-batches. */
    async step(microBatches = 1) {
      stage.zeroGradients();
      for (let m = 0; m < microBatches; m++) await queue();
      await stage.checkGradients(1);
      await stage.gradientSquares();
      await stage.optimize(++steps, LEARNING_RATE);
      await drain();
    },
  };
}

export type BenchStage = Awaited<ReturnType<typeof openBenchStage>>;

/** A run to observe. */
interface WatchedRun extends Workload {
  readonly microBatches: number;
  readonly steps: number;
  /** More flags: workers, schedule, isolation ... */
  readonly flags: readonly string[];
}

const EVERY_MS = 200;

const CLI = "../cli.ts";

/**
 * Trains, with a checkpoint at the end. Linux only, as other systems do not show the memory of
 * processes.
 *
 * @returns the bytes that the run planned, and the most resident bytes of all its processes: of the
 * whole run (`peak`), from its first step to its last (`training`) and after it (`end`).
 * @throws {Error} if the run fails.
 */
export async function trainWatched({ config, microBatch, microBatches, steps, flags }: WatchedRun) {
  const folder = await Deno.makeTempDir({ prefix: "troupe-memory-" });
  try {
    const rows = steps * microBatches * microBatch + 1; // one more for the last target
    const [batch] = benchBatches(1, 1, { config, microBatch: rows });
    const tokens = `${folder}/tokens.bin`;
    await Deno.writeFile(tokens, new Uint8Array(Uint16Array.from(batch!.ids).buffer));
    const sizes = {
      ...config,
      "micro-batch-size": microBatch,
      "micro-batches": microBatches,
      steps,
    };
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "-A", "--no-check", new URL(CLI, import.meta.url).href],
        ...["train", "--json", "--memory", "--tokens", tokens, "--out", `${folder}/run`],
        ...Object.entries(sizes).map(([name, size]) => `--${name}=${size}`),
        ...flags,
      ],
      stdin: "null",
      stdout: "piped",
    }).spawn();
    return await watch(child, steps);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function watch(child: Deno.ChildProcess, steps: number) {
  const most = { peak: 0, training: 0, end: 0 };
  let phase: "training" | "end" | undefined, planned = 0;
  const look = () => {
    const bytes = residentBytes(child.pid);
    for (const name of ["peak", ...phase ? [phase] : []] as const) {
      most[name] = Math.max(most[name], bytes);
    }
  };
  const timer = setInterval(look, EVERY_MS);
  try {
    for await (const line of linesOf(child.stdout)) {
      const told = JSON.parse(line);
      if ("loss" in told) {
        phase = "training";
        look();
        if (told.step === steps) phase = "end";
      }
      planned = told.plannedBytes ?? planned;
    }
    const { success } = await child.status;
    if (!success || planned === 0) throw new Error("Cannot measure: the run failed");
    return { planned, ...most };
  } finally {
    clearInterval(timer);
  }
}
