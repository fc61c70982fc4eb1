/**
 * Training outlives its workers: whatever ends them, at random moments, the run ends by itself with
 * the bits of a run in which nobody died.
 */

import assert from "node:assert/strict";
import { type TrainOptions, type WorkerFault } from "../../../actors/mod.ts";
import { substream } from "../../../kernels/mod.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { startedProcesses } from "../child_processes.ts";
import { batchesOf, type Outcome, outcome, sideBySide, type Sizes, SMALL } from "../runs.ts";

const SEED = 11;

/** Faults of each kind: moments in runs of 20 steps. */
const MOMENTS = 20;

/** A run suffers some faults, one after the other, so that each needs no run of its own. */
const FAULTS_A_RUN = 5;

const SIZES: Sizes = { ...SMALL, hidden: 16, seq: 8, microBatches: 4, steps: 20 };
const WORKERS = 2;

/** Actions of a worker in a step: F and B of each micro-batch, and a dozen of the step's end. */
const ACTIONS_A_STEP = 2 * SIZES.microBatches + 4;

const OPTIONS = {
  device: "native",
  workers: WORKERS,
  schedule: "1f1b",
  runtime: "workers",
} as const;

/** Runs of one test: they share nothing, and go on side by side. */
const RUNS = MOMENTS / FAULTS_A_RUN;

/** Twenty faults of one kind, a few for each run. */
function faultRuns(kind: WorkerFault["kind"]): WorkerFault[][] {
  const generator = substream(SEED, `faults ${kind}`);
  const draw = (below: number) => (generator.next() >>> 0) % below;
  return Array.from({ length: RUNS }, () =>
    Array.from({ length: FAULTS_A_RUN }, () => ({
      worker: draw(WORKERS),
      afterActions: draw(SIZES.steps / 2 * ACTIONS_A_STEP),
      kind,
    })));
}

let undisturbed: Promise<Outcome> | undefined;

async function assertOutlived(kind: string, options: Partial<TrainOptions>): Promise<void> {
  undisturbed ??= outcome(SIZES, OPTIONS);
  const told: string[] = [];
  const run = await outcome(SIZES, {
    ...OPTIONS,
    retries: MOMENTS,
    announce: (line) => void told.push(line),
    ...options,
  });
  const what = `${kind} ${JSON.stringify(options.faults)}`;
  assert.deepEqual(run.bits, (await undisturbed).bits, what);
  const failures = told.filter((line) => line.endsWith("going on from the last committed step"));
  assert.ok(failures.length >= FAULTS_A_RUN, `${what}: ${told.join("\n")}`);
}

/** The pipe runs empty so often, and what is lost is taken again from there. */
const PAUSE = 4;

for (const schedule of ["pipedream", "pipedream-2bw"]) {
  Deno.test(`workers of ${schedule} that end at ${MOMENTS} random moments change no bit of a run with the same pauses`, async () => {
    const evaluation = { every: PAUSE, batches: batchesOf(SIZES, 2) };
    const pauses = { ...OPTIONS, schedule, evaluation };
    const { bits } = await outcome(SIZES, pauses);
    const generator = substream(SEED, `faults ${schedule}`);
    const draw = (below: number) => (generator.next() >>> 0) % below;
    const runs = Array.from(
      { length: RUNS },
      () =>
        Array.from({ length: FAULTS_A_RUN }, (_, n) => ({
          worker: draw(WORKERS),
          afterActions: draw(PAUSE * ACTIONS_A_STEP),
          kind: (["exit", "throw", "close"] as const)[n % 3]!,
        })),
    );
    await sideBySide(runs.map(async (faults) => {
      const told: string[] = [], announce = (line: string) => void told.push(line);
      const run = await outcome(SIZES, { ...pauses, retries: MOMENTS, faults, announce });
      const what = `${JSON.stringify(faults)}: ${told.join("\n")}`;
      assert.deepEqual(run.bits, bits, what);
      assert.equal(told.filter((line) => line.includes("going on")).length, faults.length, what);
    }));
  });
}

for (const kind of ["throw", "exit", "close"] as const) {
  Deno.test(`workers that end by ${kind} at ${MOMENTS} random moments change no bit of the run`, async () => {
    await sideBySide(faultRuns(kind).map((faults) => assertOutlived(kind, { faults })));
  });
}

for (const kind of ["exit", "memory", "loop"] as const) {
  Deno.test(`processes that end by ${kind} at ${MOMENTS} random moments change no bit of the run`, async () => {
    // Only what hangs is told by time; a busy machine must not look as if it hung.
    const limits = { heapLimitMb: 64, ...kind === "loop" && { stallMs: 1500 } };
    const options = { isolation: "process", ...limits } as const;
    await sideBySide(
      faultRuns(kind).map((faults) => assertOutlived(kind, { faults, ...options })),
    );
  });
}

/** Four runs, side by side, and calls of `end` after random delays in five random steps of each. */
async function endedFromOutside(
  end: (random: (below: number) => number) => void,
  options: Partial<TrainOptions>,
): Promise<void> {
  let told = 0;
  const announce = (line: string) => void (told += Number(line.includes("going on")));
  await sideBySide(Array.from({ length: RUNS }, async (_, run) => {
    const generator = substream(SEED, `moments ${run}`);
    const random = (below: number) => (generator.next() >>> 0) % below;
    const timers = new Set<ReturnType<typeof setTimeout>>();
    let left = FAULTS_A_RUN;
    const data = withMoments(() => {
      if (left === 0 || random(4) > 0) return;
      left--;
      timers.add(setTimeout(() => end(random), random(20)));
    });
    await assertBits({ ...options, announce, data });
    for (const timer of timers) clearTimeout(timer);
  }));
  assert.ok(told >= RUNS, `some must have died in each run, received ${told} in all`);
}

/** The data of a run, and a word before each micro-batch of it is taken. */
function* withMoments(moment: () => void) {
  for (const batch of batchesOf(SIZES)) {
    moment();
    yield batch;
  }
}

async function assertBits(options: Partial<TrainOptions>): Promise<void> {
  undisturbed ??= outcome(SIZES, OPTIONS);
  const run = await outcome(SIZES, { ...OPTIONS, retries: 1000, ...options });
  assert.deepEqual(run.bits, (await undisturbed).bits);
}

Deno.test("worker threads that are terminated from outside change no bit of the run", async () => {
  const Original = globalThis.Worker, living = new Set<Worker>();
  globalThis.Worker = class extends Original {
    constructor(...args: ConstructorParameters<typeof Original>) {
      super(...args);
      // Nobody else can end a thread that has not yet begun to listen.
      this.addEventListener("message", () => living.add(this), { once: true });
    }
    override terminate() {
      living.delete(this);
      super.terminate();
    }
  };
  try {
    await endedFromOutside((random) => {
      if (living.size > 0) [...living][random(living.size)]!.terminate();
    }, {});
  } finally {
    globalThis.Worker = Original;
  }
});

Deno.test({
  name:
    "processes that are killed from outside by kill -9 change no bit of the run, and none is left",
  ignore: Deno.build.os !== "linux",
  async fn() {
    await endedFromOutside((random) => {
      const children = startedProcesses();
      if (children.length > 0) Deno.kill(children[random(children.length)]!, "SIGKILL");
    }, { isolation: "process" });
    assert.deepEqual(startedProcesses(), []);
  },
});

Deno.test("a thread that hangs ends the program with code 75, says who waits for whom, and how to go on", async () => {
  const folder = await Deno.makeTempDir();
  const program = new URL("../pipeline/wedged_program.ts", import.meta.url);
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", program.href, folder],
    env: { NO_COLOR: "1" },
    signal: AbortSignal.timeout(HANG_LIMIT_MS),
  }).output();
  const text = new TextDecoder().decode(stderr);
  assert.equal(code, 75, text);
  assert.match(text, /step 4 stalled for 2000 ms: .*worker-1 does not answer/);
  assert.match(text, /worker-0 waits for 0[FB]\d, with \[.*\] ready/);
  assert.match(text, /go on with: deno task train --resume .*step-00000003/);
  await Deno.remove(folder, { recursive: true });
});
