/**
 * Compares Troupe with PyTorch and jax-js: a small GPT-2, and GPT-2 small on two workers.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { delay } from "@std/async/delay";
import {
  ADAMW_DEFAULTS,
  type AdamWOptions,
  compileModel,
  openDevice,
  type TokenBatch,
} from "../kernels/mod.ts";
import { elementCount } from "../kernels/graph/shapes.ts";
import { resultOr } from "../kernels/internal.ts";
import { fastestSchedule, measureWorkers } from "./pipeline.ts";
import { reasonRow, type Row, rowMaker, talkTo } from "./report.ts";
import { interleave, type RoundOptions, type Spread, spreadOf } from "./timing.ts";
import {
  benchBatches,
  benchDevices,
  benchModel,
  type BenchRun,
  closing,
  firstWeights,
  GPT2_SMALL,
  LEARNING_RATE,
  openBenchEngine,
  openBenchStage,
  SMALL,
  tokensOf,
  type Workload,
} from "./workload.ts";

/** The first answer compiles or tries alternatives, which takes minutes for a large model. */
const ANSWER_LIMIT_MS = 600_000;

/** A step of another program. */
interface PeerStep {
  /** Milliseconds, measured by the program. */
  readonly ms: number;
  /** The mean loss of the tokens. */
  readonly loss: number;
}

/** The command of a program. */
interface PeerCommand {
  /** The name of the library in errors. */
  readonly library: string;
  readonly command: string;
  /** Its arguments before the folder of {@linkcode writeTask}. */
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** The work of a program. */
export interface PeerTask {
  readonly workload: Workload;
  /** Micro-batches of a step, N. */
  readonly microBatches: number;
  /** Micro-batches of all steps, which are repeated. Default: random ones for one step. */
  readonly batches?: readonly TokenBatch[];
  /** Micro-batches of an evaluation. Default: none. */
  readonly heldOut?: readonly TokenBatch[];
  /** Learning rates of all steps, which are repeated. Default: a constant one. */
  readonly rates?: readonly number[];
  /** Limit of the norm of all gradients. Default 0: no limit. */
  readonly clip?: number;
  /** Settings of AdamW that differ from its defaults. */
  readonly optimizer?: Partial<AdamWOptions>;
  /** Returns true for a parameter that PyTorch's model lacks; Troupe's is frozen, and 0. Default: none. */
  readonly lacks?: (parameter: string) => boolean;
}

/** Writes the input of a program that trains like Troupe. */
async function writeTask(folder: string, task: PeerTask): Promise<void> {
  const { workload, microBatches, heldOut = [], clip = 0, lacks = () => false } = task;
  const { parameters } = compileModel(benchModel(workload), "none");
  const file = await Deno.create(`${folder}/weights.f32`), writer = file.writable.getWriter();
  for (const [name, values] of firstWeights(workload)) {
    if (lacks(name)) continue;
    await writer.write(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  }
  await writer.close();
  const listed = (batches: readonly TokenBatch[]) =>
    batches.map(({ ids, targets }) => ({ ids: [...ids], targets: [...targets] }));
  const model = {
    ...{ ...workload, microBatches, clip, rates: task.rates ?? [LEARNING_RATE] },
    parameters: parameters.filter(({ name }) => !lacks(name))
      .map(({ name, shape }) => ({ name, shape, size: elementCount(shape) })),
    batches: listed(task.batches ?? benchBatches(microBatches, 1, workload)),
    heldOut: listed(heldOut),
    optimizer: { ...ADAMW_DEFAULTS, ...task.optimizer },
  };
  await Deno.writeTextFile(`${folder}/model.json`, JSON.stringify(model));
}

/** Returns the sentence of Deno or Python on the end of a program, or an empty one. */
function reasonIn(text: string): string {
  const lines = text.trim().split("\n");
  const line = lines.find((one) => one.startsWith("error: ")) ??
    lines.findLast((one) => /^\w*(Error|Exception): /.test(one)) ?? lines[0]!;
  return line.replace(/^error: (Uncaught \(in promise\) )?(\w*Error: )?/, "");
}

/** Starts a program that answers questions; `ask` throws the reason if it has ended. */
async function openProgram({ library, command, args, env = {} }: PeerCommand, task: PeerTask) {
  const folder = await Deno.makeTempDir({ prefix: "troupe-bench-" });
  await writeTask(folder, task);
  const child = new Deno.Command(command, {
    args: [...args, folder],
    env: { ...env, NO_COLOR: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const problem = new Response(child.stderr).text(), { ask, close } = talkTo(child);
  const kill = () => resultOr(() => child.kill(), undefined); // it may have ended
  return {
    ask: <Answer>(question: string) =>
      deadline(ask<Answer>(question), ANSWER_LIMIT_MS).catch(async (error) => {
        kill(); // it may hang
        const reason = reasonIn(await problem) || (error as Error).message;
        throw new Error(`Cannot run ${library}: ${reason}`);
      }),
    async [Symbol.asyncDispose]() {
      kill();
      await close();
      await problem;
      await Deno.remove(folder, { recursive: true });
    },
  };
}

/** Not in deno.json, as only this benchmark fetches it. */
const JAX = "npm:@jax-js/jax@0.1.25";

/** Options of jax-js. */
interface JaxOptions {
  readonly backend: "wasm" | "webgpu";
  /** Workers of the pool of its WebAssembly backend; 0 for the calling thread. */
  readonly pool?: number;
  /** Environment variables that select an adapter. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** A program in a race. */
interface Runner {
  readonly title: string;
  /** Tokens of a step. */
  readonly tokens: number;
  readonly note?: string;
  /** Takes a step; returns its milliseconds if it measures them. */
  readonly step: () => Promise<{ readonly ms?: number; readonly loss?: number }>;
}

/** Opens a program, which the stack closes. */
type Open = (stack: AsyncDisposableStack) => Runner | Promise<Runner>;

/** Two programs of a race that are compared. */
interface Pair extends Pick<Row, "target" | "note"> {
  readonly ours: string;
  readonly theirs: string;
}

/** Runs programs in the same rounds; rows have the reasons why programs are missing. */
export async function race(
  entrants: Readonly<Record<string, Open>>,
  pairs: readonly Pair[],
  options: RoundOptions,
): Promise<Row[]> {
  await using stack = new AsyncDisposableStack();
  const runners = new Map<string, Runner & { readonly losses: number[] }>(), missing: Row[] = [];
  for (const [name, open] of Object.entries(entrants)) {
    try {
      runners.set(name, { ...await open(stack), losses: [] });
    } catch (error) {
      missing.push(reasonRow(name, error));
    }
  }
  const cases = Array.from(runners, ([name, { step, losses }]) =>
    [name, async () => {
      const { ms, loss = NaN } = await step();
      losses.push(loss);
      return ms;
    }] as const);
  const rounds = await interleave(Object.fromEntries(cases), { ...options, isAlone: false });
  const row = rowMaker(rounds);
  return [
    ...Array.from(
      runners,
      ([name, { title, tokens, note = "" }]) =>
        row(title, "tokens/s", (ms) => 1000 * tokens / ms[name]!, { note }),
    ),
    ...missing,
    ...pairs.flatMap(({ ours, theirs, ...more }) => {
      const [mine, other] = [ours, theirs].map((name) => runners.get(name)?.losses);
      if (!mine || !other) return [];
      const apart = Math.max(...mine.map((loss, i) => Math.abs(loss - other[i]!)));
      return row(`${ours} ÷ ${theirs}`, "×", (ms) => ms[theirs]! / ms[ours]!, {
        note: `losses of ${mine.length} steps differ by at most ${apart.toExponential(1)}`,
        ...more,
      });
    }),
  ];
}

/** Returns a function that opens jax-js; a step is forward and backward, `passes` times. */
export const jaxOf = (
  { backend, pool = 0, environment = {} }: JaxOptions,
  workload: Workload,
  name: string,
  passes = 1,
): Open =>
async (stack) => {
  const program = stack.use(
    await openProgram(
      {
        library: JAX,
        command: Deno.execPath(),
        args: [
          ...["run", "--no-prompt", "--allow-read", "--quiet", "--no-lock", "--no-config"],
          ...["--node-modules-dir=none", new URL("./jax_gpt.ts", import.meta.url).href],
          ...[JAX, backend, `${pool}`],
        ],
        env: environment,
      },
      { workload, microBatches: 1 },
    ),
  );
  const pass = () => program.ask<PeerStep>("step");
  await pass(); // compiles
  return {
    title: `${name}: forward and backward`,
    tokens: passes * tokensOf(workload),
    async step() {
      const all: PeerStep[] = [];
      while (all.length < passes) all.push(await pass());
      return { ms: all.reduce((sum, { ms }) => sum + ms, 0), loss: all[0]!.loss };
    },
  };
};

const ALONE = "jax-js, wasm", POOL = "jax-js, wasm, pool of two";
const TWO = "wasm, two workers";

/** Micro-batches of a step of two workers, N. */
const MICRO_BATCHES = 8;

/** Steps for choosing a schedule. */
const TRIED_STEPS = 3;

/** Speed of wasm relative to jax-js, with the same number of threads. */
const TARGET = { atLeast: 1.3 } as const;

/** Compares the devices of this machine with jax-js. */
async function raceJax(): Promise<Row[]> {
  const { names, missing } = await benchDevices(true), entrants: Record<string, Open> = {};
  for (const name of names) {
    entrants[name] = async (stack) => {
      const device = stack.use(closing(await openDevice(name)));
      const { forwardBackward } = await openBenchStage(device);
      return {
        title: `${name}: forward and backward`,
        tokens: tokensOf(SMALL),
        step: async () => ({ loss: await forwardBackward() }),
      };
    };
  }
  const run = { device: "wasm", workers: 2, microBatches: MICRO_BATCHES } as const;
  entrants[TWO] = async (stack) => {
    const { schedule } = await fastestSchedule(run, TRIED_STEPS);
    const { step } = stack.use(await openBenchEngine({ ...run, schedule }));
    return {
      title: `${TWO}: step of ${MICRO_BATCHES}`,
      tokens: MICRO_BATCHES * tokensOf(SMALL),
      note: schedule,
      step: async () => ({ loss: await step() }),
    };
  };
  entrants[ALONE] = jaxOf({ backend: "wasm" }, SMALL, ALONE);
  entrants[POOL] = jaxOf({ backend: "wasm", pool: 2 }, SMALL, POOL, MICRO_BATCHES);
  const note = "a whole step against forward and backward alone";
  const rows = await race(entrants, [
    ...names.map((ours) => ({ ours, theirs: ALONE, ...ours !== "native" && { target: TARGET } })),
    { ours: TWO, theirs: POOL, target: TARGET, note },
  ], { rounds: 9, warmup: 1 });
  return [...missing, ...rows];
}

/** Programs that may import PyTorch. */
const PYTHONS = ["python3", "/usr/bin/python3"] as const;

/** Threads of its libraries spin before they sleep: OpenBLAS for 2²⁶ cycles. */
const WAKE_MS = 50;

/** Returns a Python with PyTorch. @throws {Error} if there is none. */
export async function findTorch(): Promise<string> {
  for (const python of PYTHONS) {
    try {
      const { success } = await new Deno.Command(python, { args: ["-c", "import torch"] }).output();
      if (success) return python;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
  throw new Error(`no PyTorch: neither ${PYTHONS.join(" nor ")} imports torch`);
}

/**
 * Returns the best kernels of OpenBLAS for the flags of this processor; the default of OpenBLAS
 * depends on its build. Kernels with BF16 compute FP32 like SkylakeX. PyTorch with another library
 * ignores the setting.
 */
async function openblasCore(): Promise<string | undefined> {
  const text = await Deno.readTextFile("/proc/cpuinfo").catch(() => "");
  const flags = new Set(/^flags\s*:(.*)$/m.exec(text)?.[1]?.trim().split(/\s+/));
  if (flags.has("avx512_bf16")) return "COOPERLAKE";
  if (flags.has("avx512f")) return "SKYLAKEX";
  return flags.has("avx2") ? "HASWELL" : undefined;
}

/** Precision of PyTorch: FP32, or BF16 where its `autocast` chooses it. */
export type TorchPrecision = "fp32" | "bf16";

/** Starts PyTorch on some threads. */
export async function openTorch(
  threads: number,
  task: PeerTask,
  precision: TorchPrecision = "fp32",
) {
  const python = await findTorch(), core = await openblasCore();
  const program = await openProgram(
    {
      library: "PyTorch",
      command: python,
      args: [new URL("./torch_gpt.py", import.meta.url).pathname, `${threads}`, precision],
      env: {
        OMP_NUM_THREADS: `${threads}`,
        OPENBLAS_NUM_THREADS: `${threads}`,
        ...core && { OPENBLAS_CORETYPE: core },
      },
    },
    task,
  );
  type About = { version: string; threads: number; ways: Record<string, string> };
  const { version, threads: taken, ways } = await program.ask<About>("about");
  const kernels = `OPENBLAS_CORETYPE=${core ?? "unset"}`;
  const title = `PyTorch ${version}, ${precision}, threads: ${taken}, ${kernels}`;
  return {
    /** Version, threads, precision, and which kernels compute FP32 products. */
    title,
    /** The title, and the fastest alternatives, which it uses. */
    note: [title, ...Object.entries(ways).map(([what, way]) => `${what}: ${way}`)].join("; "),
    async step() {
      const step = await program.ask<PeerStep>("step");
      if (threads > 1) await delay(WAKE_MS); // frees the cores for the next case
      return step;
    },
    /** Returns the mean loss of the held-out tokens. */
    evaluate: async () => (await program.ask<{ loss: number }>("evaluate")).loss,
    [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
  };
}

/** Required speeds of Troupe relative to PyTorch, in FP32 and in BF16. */
type Targets = readonly [fp32: number, bf16?: number];

/** Compares workers with the same number of threads of PyTorch, in each precision. */
async function racePrecisions(
  run: Required<Pick<BenchRun, "device" | "workload" | "workers" | "microBatches" | "schedule">>,
  rounds: RoundOptions,
  [fp32, bf16]: Targets,
): Promise<Row[]> {
  const tokens = run.microBatches * tokensOf(run.workload), isAlone = run.workers === 1;
  const torch: Record<string, Open> = {}, troupe: Record<string, Open> = {}, pairs: Pair[] = [];
  const compared = [["fp32", "fp32", fp32], ["fp32", "bf16"], ["bf16", "bf16", bf16]] as const;
  for (const [precision, other, atLeast] of compared) {
    const ours = `native, ${isAlone ? "one worker" : "two workers"}, ${precision}`;
    const type = other === "bf16" ? "bf16 autocast" : other;
    const theirs = `PyTorch, ${isAlone ? "one thread" : "two threads"}, ${type}`;
    pairs.push({ ours, theirs, ...atLeast && { target: { atLeast } } });
    torch[theirs] = async (stack) => {
      const { note, step } = stack.use(await openTorch(run.workers, run, other));
      return { title: `${theirs}: step`, tokens, note, step };
    };
    troupe[ours] = async (stack) => {
      const { step } = stack.use(await openBenchEngine({ ...run, precision }));
      const note = isAlone ? "one thread" : `${run.schedule}, a thread each`;
      return { title: `${ours}: step`, tokens, note, step: async () => ({ loss: await step() }) };
    };
  }
  // PyTorch first: it tries alternatives, whose models must not share memory with the engines.
  return await race({ ...torch, ...troupe }, pairs, rounds);
}

/** Returns the time of PyTorch's step on some threads, relative to that on one. */
async function slowdown(threads: number): Promise<Spread> {
  const task = { workload: SMALL, microBatches: 1 };
  await using one = await openTorch(1, task);
  await using more = await openTorch(threads, task);
  const cases = {
    one: async () => (await one.step()).ms,
    more: async () => (await more.step()).ms,
  };
  const rounds = await interleave(cases, { rounds: 9, isAlone: false });
  return spreadOf(rounds, (ms) => ms.more / ms.one);
}

/** The comparison of a workload with PyTorch. */
interface TorchRace {
  readonly workload: Workload;
  /** Micro-batches of a step of one worker, which has no bubbles. */
  readonly alone: number;
  readonly rounds: RoundOptions;
  /** Steps for choosing the schedule of two workers. */
  readonly triedSteps: number;
  /** Of one worker. */
  readonly one: Targets;
  /** Of two workers. */
  readonly two: Targets;
}

/**
 * Compares whole steps with PyTorch: one worker, and two with the fastest schedule, unless PyTorch is
 * slower on two threads than on one.
 */
async function raceTorch({ workload, alone, rounds, triedSteps, one, two }: TorchRace) {
  const run = { device: "native", workload, workers: 2, microBatches: MICRO_BATCHES } as const;
  const { schedule, rows } = await fastestSchedule(run, triedSteps);
  const single = { ...run, workers: 1, microBatches: alone, schedule: "1f1b" };
  try {
    rows.push(...await racePrecisions(single, rounds, one));
    const measured = await slowdown(2), note = "it collapses: left out";
    if (measured.median <= 1) {
      rows.push(...await racePrecisions({ ...run, schedule }, rounds, two));
    } else rows.push({ name: "PyTorch, two threads ÷ one: step", unit: "×", measured, note });
  } catch (error) {
    rows.push(reasonRow("PyTorch", error));
  }
  return { run: { ...run, schedule }, rows };
}

/** Compares each with Troupe; if one is not available, a row has the reason. */
export async function peersBench(): Promise<Row[]> {
  const rounds = { rounds: 15 }, race = { workload: SMALL, alone: MICRO_BATCHES, rounds };
  const { rows } = await raceTorch({ ...race, triedSteps: 8, one: [1.22, 1.05], two: [1.2] });
  return [...rows, ...await raceJax()];
}

/** Measures GPT-2 small, in about 20 minutes, with 15 GB. */
export async function gpt2Bench(): Promise<Row[]> {
  const rounds = { rounds: 4, warmup: 1 }; // a step takes seconds
  const race = { workload: GPT2_SMALL, alone: 2, rounds, triedSteps: 2 };
  const { run, rows } = await raceTorch({ ...race, one: [1.14, 1.11], two: [1.2] });
  const options = { rounds: 2, warmup: 1, isAlone: false };
  const { rows: limits } = await measureWorkers({ ...run, rounds: 3 }, options);
  return [...rows, ...limits];
}
