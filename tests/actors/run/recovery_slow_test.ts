/**
 * Training survives failures of its workers: if they end at random moments, the run has the bits of
 * a run in which no worker was lost.
 */

import assert from "node:assert/strict";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import type { WorkerFault } from "../../../actors/pipeline/worker_state.ts";
import { substream } from "../../../kernels/random.ts";
import { atDepth } from "../../depth.ts";
import { folderTest } from "../../in_folder.ts";
import { testNeeding } from "../../needs.ts";
import { runScript } from "../../console/command.ts";
import { startedProcesses, watchThreads } from "../child_processes.ts";
import { batchesOf, eventsOf, once, outcome, sideBySide, type Sizes, SMALL } from "../runs.ts";

const SIZES: Sizes = { ...SMALL, hidden: 16, seq: 8, microBatches: 4, steps: 16 };

/** F and B of each micro-batch, a reduction and two buckets. */
const ACTIONS_A_STEP = 2 * SIZES.microBatches + 3;

/** The fewest steps left after a failure: up to the next snapshot, or pause. */
const SNAPSHOT = 10, PAUSE = 4;

const drawer = (name: string) => {
  const generator = substream(11, name);
  return (below: number) => (generator.next() >>> 0) % below;
};

/** Faults of some kinds, each at a random moment; the same one twice in a row would end the run. */
function faultsOf(kinds: readonly WorkerFault["kind"][], schedule: string, run = 0): WorkerFault[] {
  const draw = drawer(`faults ${kinds} ${schedule} ${run}`);
  const actions = (schedule.startsWith("pipedream") ? PAUSE : SNAPSHOT) * ACTIONS_A_STEP;
  const first = draw(2);
  return kinds.map((kind, i) => ({ kind, worker: (first + i) % 2, afterActions: draw(actions) }));
}

/** Two stages on each worker, whose backwards for the weights may wait for the end of a step. */
const V = { chunks: 2, activationLimit: 4, weightBacklog: "all" } as const;

/** Without flushes lost steps are repeated from the last point at which the pipe was empty. */
function optionsOf(schedule: string): Partial<TrainOptions> {
  const options = { schedule, device: "native", workers: 2, retries: 1000 } as const;
  if (schedule === "1f1b") return options;
  if (schedule === "message-driven") return { ...options, scheduleOptions: V };
  return { ...options, evaluation: { every: PAUSE, batches: batchesOf(SIZES, 2) } };
}

const undisturbed = once((schedule) =>
  outcome(SIZES, { ...optionsOf(schedule), runtime: "serial" })
);

/** Trains to the end, asserts the bits of a serial run, and returns the failures. */
async function failuresOf(schedule: string, options: Partial<TrainOptions>): Promise<string[]> {
  const { bits, events } = await outcome(SIZES, { ...optionsOf(schedule), ...options });
  const failures = eventsOf(events, "failure").map(({ reason }) => reason);
  const what = `${JSON.stringify(options.faults)}: ${failures.join("\n")}`;
  const serial = await undisturbed(schedule);
  assert.deepEqual(bits, serial.bits, what);
  assert.deepEqual(eventsOf(events, "evaluation"), eventsOf(serial.events, "evaluation"), what);
  return failures;
}

/** Faults of one run: a worker that fails often waits ever longer before it starts again. */
const THROWS = Array<"throw">(5).fill("throw");
const RUNS = atDepth(1, 8), MOMENTS = RUNS * THROWS.length;

for (const schedule of [...atDepth([], ["1f1b"]), "message-driven", "pipedream", "pipedream-2bw"]) {
  Deno.test(`workers of ${schedule} that throw at ${MOMENTS} random moments change no bit of the run`, async () => {
    const lines: string[] = [], announce = (line: string) => void lines.push(line);
    await sideBySide(Array.from({ length: RUNS }, async (_, run) => {
      const faults = faultsOf(THROWS, schedule, run);
      const failures = await failuresOf(schedule, { runtime: "local", faults, announce });
      assert.equal(failures.length, faults.length);
    }));
    const goingOn = "; the run continues from the last committed step";
    assert.equal(lines.filter((line) => line.endsWith(goingOn)).length, MOMENTS);
  });
}

Deno.test("threads that end at random moments change no bit of the run", async () => {
  const kinds = ["close", "exit"] as const;
  for (const schedule of atDepth(["pipedream-2bw"], ["pipedream-2bw", "1f1b"])) {
    for (let run = 0; run < atDepth(1, 8); run++) {
      const failures = await failuresOf(schedule, { faults: faultsOf(kinds, schedule, run) });
      assert.equal(failures.length, kinds.length, failures.join("\n"));
    }
  }
});

Deno.test("processes that end by exit, memory or an endless loop change no bit of the run", async () => {
  const kinds = ["exit", "memory", "loop"] as const;
  const options = { isolation: "process", heapLimitMb: 64, stallMs: 1500 } as const;
  for (let run = 0; run < atDepth(1, 8); run++) {
    const failures = await failuresOf("1f1b", { ...options, faults: faultsOf(kinds, "1f1b", run) });
    // On a busy machine, one more stall may be reported.
    assert.ok(failures.length >= kinds.length, failures.join("\n"));
    assert.ok(failures.some((reason) => /stalled for 1500 ms/.test(reason)), failures.join("\n"));
  }
});

/** Trains, and ends one of `all` in two random steps: immediately, and in a step after a snapshot. */
async function endedFromOutside<T>(
  schedule: string,
  all: () => readonly T[],
  end: (one: T) => void,
  options: Partial<TrainOptions>,
): Promise<void> {
  let ended = 0, failed = 0;
  // A run may end a worker of another run at the same time: only the sums are known.
  await sideBySide(Array.from({ length: atDepth(1, 4) }, async (_, run) => {
    const random = drawer(`moments ${run}`), timers: ReturnType<typeof setTimeout>[] = [];
    const steps = [random(5), 10 + random(5)];
    const now = () => {
      const living = all(), one = living[random(Math.max(1, living.length))];
      if (one === undefined) return;
      end(one);
      ended++;
    };
    const data = function* () {
      for (const [i, batch] of batchesOf(SIZES).entries()) {
        const step = i / SIZES.microBatches;
        if (step === steps[0]) now();
        else if (steps.includes(step)) timers.push(setTimeout(now, random(20)));
        yield batch;
      }
    };
    const failures = await failuresOf(schedule, { ...options, data: data() });
    timers.forEach((timer) => clearTimeout(timer));
    failed += failures.length;
  }));
  assert.ok(failed >= 1 && failed <= ended, `${failed} failures of ${ended} that were ended`);
}

Deno.test("worker threads that are terminated from outside change no bit of the run", async () => {
  using threads = watchThreads();
  await endedFromOutside("1f1b", () => [...threads.living], (worker) => worker.terminate(), {});
});

const LINUX = { isThere: Deno.build.os === "linux", reason: "Linux" };

testNeeding(
  LINUX,
  "processes that are killed by kill -9 change no bit of the run, and none is left",
  async () => {
    const kill = (id: number) => Deno.kill(id, "SIGKILL");
    await endedFromOutside("message-driven", startedProcesses, kill, { isolation: "process" });
    assert.deepEqual(startedProcesses(), []);
  },
);

folderTest("a thread that hangs ends the program with code 75 and its reason", async (folder) => {
  const program = new URL("../pipeline/wedged_program.ts", import.meta.url).href;
  const { code, stderr } = await runScript(program, [folder], ["--no-check"]);
  assert.equal(code, 75, stderr);
  assert.match(stderr, /step 4 stalled for 2000 ms: .*worker-1 does not answer/);
  assert.match(stderr, /worker-0 waits for 0[FB]\d, with \[.*\] ready/);
  assert.match(stderr, /continue with: deno task train --resume .*step-00000003/);
});
