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
  type DeviceName,
  openDevice,
  type Precision,
  type TokenBatch,
} from "../kernels/mod.ts";
import { elementCount } from "../kernels/graph/shapes.ts";
import { fastestSchedule, limitRows, measureLimits } from "./pipeline.ts";
import { reasonRow, type Row, rowMaker, talkTo } from "./report.ts";
import { interleave, type Round, type RoundOptions, type Spread, spreadOf } from "./timing.ts";
import {
  benchBatches,
  benchDevices,
  benchModel,
  type BenchStage,
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

/** A program that takes steps on request. */
export interface Peer extends AsyncDisposable {
  step(): Promise<PeerStep>;
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
  return {
    ask: <Answer>(question: string) =>
      deadline(ask<Answer>(question), ANSWER_LIMIT_MS).catch(async (error) => {
        kill(child); // it may hang
        const reason = reasonIn(await problem) || (error as Error).message;
        throw new Error(`Cannot run ${library}: ${reason}`);
      }),
    async [Symbol.asyncDispose]() {
      kill(child);
      await close();
      await problem;
      await Deno.remove(folder, { recursive: true });
    },
  };
}

/** Kills a program if it has not ended. */
function kill(child: Deno.ChildProcess): void {
  try {
    child.kill();
  } catch {
    // It has ended.
  }
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

/** Starts jax-js with the weights and the micro-batch of a workload. */
export async function openJax(
  { backend, pool = 0, environment = {} }: JaxOptions,
  workload: Workload,
): Promise<Peer> {
  const program = await openProgram(
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
  );
  return { ...program, step: () => program.ask<PeerStep>("step") };
}

/** Returns the loss of the first step, in which jax-js compiles, or the reason of a failure. */
export async function firstLoss(jax: Peer): Promise<number | string> {
  try {
    return (await jax.step()).loss;
  } catch (error) {
    return (error as Error).message;
  }
}

const ALONE = "jax-js, wasm", POOL = "jax-js, wasm, pool of two";
const TWO = "wasm, two workers";

/** Micro-batches of a step of two workers, N. */
const MICRO_BATCHES = 8;

/** Steps for choosing a schedule. */
const TRIED_STEPS = 3;

/** Speed of wasm relative to jax-js, with the same number of threads. */
const TARGET = { atLeast: 1.3 } as const;

type Case = () => Promise<number | void>;

/** Opens the whole model on each device and computes its loss. */
async function openStages(names: readonly DeviceName[], stack: AsyncDisposableStack) {
  const stages: { name: DeviceName; stage: BenchStage; loss: number }[] = [];
  for (const name of names) {
    const device = stack.use(closing(await openDevice(name)));
    const stage = await openBenchStage(device);
    stages.push({ name, stage, loss: await stage.forwardBackward() });
  }
  return stages;
}

/** Opens jax-js; a case runs forward and backward `passes` times. */
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

/** Measures all in the same rounds; if jax-js is not available, its rows have the reason. */
async function raceJax(): Promise<Row[]> {
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
  const row = rowMaker(rounds);
  const passesOf = (name: string) => name === TWO || name === POOL ? MICRO_BATCHES : 1;
  const rate = (name: string): Row => {
    const loss = peers.get(name)?.loss;
    const title = name === TWO
      ? `${name}: step of ${MICRO_BATCHES}`
      : `${name}: forward and backward`;
    if (!(name in cases)) return { name, unit: "", note: `${loss}` };
    const apart = stages.map((one) => Math.abs(one.loss - Number(loss)));
    return row(title, "tokens/s", (ms) => passesOf(name) * tokensOf(SMALL) / (ms[name]! / 1000), {
      ...loss !== undefined && { note: `losses differ by ${Math.max(...apart).toExponential(1)}` },
    });
  };
  const ratio = (ours: string, theirs: string): Row[] =>
    ours in cases && theirs in cases
      ? [
        row(`${ours} ÷ ${theirs}`, "×", (ms) => ms[theirs]! / ms[ours]!, {
          ...ours !== "native" && { target: TARGET },
          ...ours === TWO &&
            { note: `a whole step of ${schedule} against forward and backward alone` },
        }),
      ]
      : [];
  const shown = [...names, ...hasWasm ? [TWO] : [], ALONE, POOL];
  return [
    ...missing,
    ...shown.map(rate),
    ...names.flatMap((name) => ratio(name, ALONE)),
    ...ratio(TWO, POOL),
  ];
}

/** Programs that may import PyTorch. */
const PYTHONS = ["python3", "/usr/bin/python3"] as const;

/** Threads of its libraries spin before they sleep: OpenBLAS for 2²⁶ cycles. */
const WAKE_MS = 50;

/** Returns whether a program can import PyTorch. */
async function hasTorch(python: string): Promise<boolean> {
  try {
    const { success } = await new Deno.Command(python, {
      args: ["-c", "import torch"],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).output();
    return success;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** Returns a Python with PyTorch. @throws {Error} if there is none. */
export async function findTorch(): Promise<string> {
  for (const python of PYTHONS) if (await hasTorch(python)) return python;
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

/** Contests in the same rounds. */
interface TorchRace {
  readonly workload: Workload;
  /** Micro-batches of a step, N. */
  readonly microBatches: number;
  readonly rounds: RoundOptions;
  readonly contests: readonly TorchContest[];
}

/** Workers against the same number of threads. */
interface TorchContest {
  readonly workers: number;
  readonly schedule: string;
  readonly pairs: readonly Pair[];
}

/** Compared precisions. */
interface Pair {
  readonly ours: Precision;
  readonly theirs: TorchPrecision;
  /** Required speed of Troupe relative to PyTorch. Default: none. */
  readonly target?: number;
}

/** Returns the compared precisions: a row for each. */
const pairs = (fp32: number, bf16?: number): readonly Pair[] => [
  { ours: "fp32", theirs: "fp32", target: fp32 },
  { ours: "fp32", theirs: "bf16" },
  { ours: "bf16", theirs: "bf16", ...bf16 && { target: bf16 } },
];

/** A program in a race. */
interface Runner extends AsyncDisposable {
  readonly note: string;
  /** Takes a step; returns its milliseconds if it measures them. */
  readonly step: () => Promise<{ readonly ms?: number; readonly loss: number }>;
}

const WORDS = ["", "one", "two", "three", "four"];

/** `1 worker` in words. */
const counted = (count: number, what: string) =>
  `${WORDS[count] ?? count} ${what}${count === 1 ? "" : "s"}`;

const oursOf = ({ workers }: TorchContest, { ours }: Pair) =>
  `native, ${counted(workers, "worker")}, ${ours}`;
const theirsOf = ({ workers }: TorchContest, { theirs }: Pair) =>
  `PyTorch, ${counted(workers, "thread")}, ${theirs === "bf16" ? "bf16 autocast" : theirs}`;

async function openOurs(contest: TorchContest, { ours }: Pair, race: TorchRace): Promise<Runner> {
  const run = { ...race, ...contest, precision: ours, device: "native" } as const;
  const { step, [Symbol.asyncDispose]: close } = await openBenchEngine(run);
  const note = contest.workers === 1 ? "one thread" : `${contest.schedule}, a thread each`;
  return { note, step: async () => ({ loss: await step() }), [Symbol.asyncDispose]: close };
}

/** Runs the contests in the same rounds; rows have the reasons why programs are missing. */
async function raceTorch(race: TorchRace): Promise<Row[]> {
  await using stack = new AsyncDisposableStack();
  const runners = new Map<string, Runner>(), losses = new Map<string, number[]>();
  const missing: Row[] = [];
  const all = race.contests.flatMap((contest) =>
    contest.pairs.map((pair) => [contest, pair] as const)
  );
  const add = async (name: string, open: () => Promise<Runner>) => {
    if (runners.has(name)) return;
    try {
      runners.set(name, stack.use(await open()));
    } catch (error) {
      missing.push(reasonRow(name, error));
    }
  };
  // PyTorch first: it tries alternatives, whose models must not share memory with the engines.
  for (const [contest, pair] of all) {
    await add(theirsOf(contest, pair), () => openTorch(contest.workers, race, pair.theirs));
  }
  for (const one of all) await add(oursOf(...one), () => openOurs(...one, race));
  const cases = [...runners].map(([name, { step }]) => {
    const found: number[] = [];
    losses.set(name, found);
    return [name, async () => {
      const { ms, loss } = await step();
      found.push(loss);
      return ms;
    }] as const;
  });
  const rounds = await interleave(Object.fromEntries(cases), { ...race.rounds, isAlone: false });
  const row = rowMaker(rounds), tokens = race.microBatches * tokensOf(race.workload);
  const apart = (ours: string, theirs: string) => {
    const [mine, other] = [losses.get(ours)!, losses.get(theirs)!];
    return Math.max(...mine.map((loss, i) => Math.abs(loss - other[i]!))).toExponential(1);
  };
  return [
    ...[...runners].map(([name, { note }]) =>
      row(`${name}: step`, "tokens/s", (ms) => tokens / (ms[name]! / 1000), { note })
    ),
    ...missing,
    ...all.flatMap(([contest, pair]) => {
      const ours = oursOf(contest, pair), theirs = theirsOf(contest, pair), { target } = pair;
      if (!runners.has(ours) || !runners.has(theirs)) return [];
      return row(`${ours} ÷ ${theirs}`, "×", (ms) => ms[theirs]! / ms[ours]!, {
        ...target !== undefined && { target: { atLeast: target } },
        note: `losses of ${losses.get(ours)!.length} steps differ by at most ${
          apart(ours, theirs)
        }`,
      });
    }),
  ];
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

/** Returns the contests without threads on which PyTorch is slower than on one, and rows of those. */
async function withoutCollapse(contests: readonly TorchContest[]) {
  const kept: TorchContest[] = [], rows: Row[] = [];
  for (const contest of contests) {
    const measured = contest.workers > 1 ? await slowdown(contest.workers) : undefined;
    const name = `PyTorch, ${counted(contest.workers, "thread")} ÷ one: step`;
    if (!measured || measured.median <= 1) kept.push(contest);
    else rows.push({ name, unit: "×", measured, note: "it collapses: left out" });
  }
  return { kept, rows };
}

/** Steps for choosing a schedule. */
const PEER_STEPS = 8;

/** Compares whole steps with PyTorch: one worker, and two with the fastest schedule. */
async function torchRows(): Promise<Row[]> {
  try {
    await findTorch();
  } catch (error) {
    return [reasonRow("PyTorch", error)];
  }
  const run = { device: "native", microBatches: MICRO_BATCHES } as const;
  const { schedule, rows } = await fastestSchedule({ ...run, workers: 2 }, PEER_STEPS);
  const { kept: contests, rows: leftOut } = await withoutCollapse([
    { workers: 1, schedule: "1f1b", pairs: pairs(1.22, 1.05) },
    { workers: 2, schedule, pairs: pairs(1.2) },
  ]);
  const race = { workload: SMALL, microBatches: MICRO_BATCHES, rounds: { rounds: 15 }, contests };
  return [...rows, ...leftOut, ...await raceTorch(race)];
}

/** Compares each with Troupe; if one is not available, a row has the reason. */
export async function peersBench(): Promise<Row[]> {
  return [...await torchRows(), ...await raceJax()];
}

const WORKERS = 2;

/** Steps for choosing a schedule, after a warm-up step. */
const GPT2_STEPS = 2;

/** A step takes seconds. */
const ROUNDS = { rounds: 4, warmup: 1 } as const;

const run = { device: "native", microBatches: MICRO_BATCHES, workload: GPT2_SMALL } as const;

/** Times one worker, two independent ones, and two that share the model. */
async function timeLimits(schedule: string): Promise<Round<"one" | "two" | "twins">[]> {
  await using one = await openBenchEngine({ ...run, workers: 1 });
  await using twin = await openBenchEngine({ ...run, workers: 1 });
  await using two = await openBenchEngine({ ...run, workers: WORKERS, schedule });
  return await interleave({
    one: async () => void await one.step(),
    two: async () => void await two.step(),
    twins: async () => void await Promise.all([one.step(), twin.step()]),
  }, { rounds: 2, warmup: 1, isAlone: false });
}

/** Compares GPT-2 small with PyTorch, one number of threads after the other to save memory. */
async function raceSmall(schedule: string): Promise<Row[]> {
  const { kept, rows } = await withoutCollapse([
    { workers: 1, schedule: "1f1b", pairs: pairs(1.14, 1.11) },
    { workers: WORKERS, schedule, pairs: pairs(1.2) },
  ]);
  const race = { workload: GPT2_SMALL, rounds: ROUNDS };
  for (const contest of kept) {
    const microBatches = contest.workers > 1 ? MICRO_BATCHES : 2; // one worker has no bubbles
    rows.push(...await raceTorch({ ...race, microBatches, contests: [contest] }));
  }
  return rows;
}

/** Measures GPT-2 small, in about 20 minutes, with 15 GB. */
export async function gpt2Bench(): Promise<Row[]> {
  const { schedule, rows } = await fastestSchedule({ ...run, workers: WORKERS }, GPT2_STEPS);
  const rates = await raceSmall(schedule)
    .catch((error) => [reasonRow("PyTorch", error)]);
  const limits = await measureLimits({ ...run, schedule, workers: WORKERS, rounds: 3 });
  const rounds = await timeLimits(schedule);
  return [...rows, ...rates, ...limitRows(rounds.map(({ ms }) => ms), limits, WORKERS)];
}
