/** A run that loses a worker moves to the others, with the same bits, and takes one step again. */

import { delay } from "@std/async/delay";
import assert from "node:assert/strict";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { RunData } from "../../../actors/run/data.ts";
import { prepareRun } from "../../../actors/run/prepare.ts";
import { train } from "../../../actors/run/train.ts";
import { openRun } from "../../../actors/run/training_run.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { atDepth, IS_DEEP } from "../../depth.ts";
import { startsSoFar, watchThreads } from "../child_processes.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { batchesOf, eventsOf, once, outcome, type Sizes, SMALL } from "../runs.ts";

const SIZES: Sizes = { ...SMALL, hidden: 16, seq: 8, microBatches: 4, steps: 4 };

const RUN = { device: "native", workers: 2, failover: "resize", retries: 0 } as const;

const THREADS = "2×2 in threads, with a layout and buckets of its stages";

/** Runs, the depth of the one pipeline that remains, and the actions before each loss. */
type Case = readonly [options: Partial<TrainOptions>, depth: number, moments: readonly number[]];
const RUNS: Readonly<Record<string, Case>> = {
  [THREADS]: [
    { schedule: "1f1b", replicas: 2, layout: "E,1|1,H", bucketSize: 4000 },
    3,
    atDepth([9], [0, 9, 20, 30]),
  ],
  "3×2, message-driven": [{ schedule: "message-driven", replicas: 3, bucketSize: 100 }, 5, [15]],
  "2×2 in processes, zero bubble, without clipping": [
    { schedule: "zb-h1", replicas: 2, clip: 0, isolation: "process" },
    3,
    [15],
  ],
  "Chimera": [{ schedule: "chimera" }, 1, [5]],
  "1×4 with buddies, message-driven": [
    { schedule: "message-driven", workers: 4, buddy: true },
    3,
    atDepth([15], [0, 9, 15, 20]),
  ],
  "1×2 with buddies, in processes": [
    { schedule: "1f1b", buddy: true, isolation: "process", clip: 0 },
    1,
    [9],
  ],
};

const deepTest = IS_DEEP ? Deno.test : () => {};

const serial = once((name) =>
  outcome(SIZES, { ...RUN, ...RUNS[name]![0], runtime: "serial", buddy: false })
);

for (const [name, [options, depth, moments]] of Object.entries(RUNS)) {
  for (const afterActions of moments) {
    Deno.test(`${name}: a worker that exits after ${afterActions} actions changes no bit`, async () => {
      const faults = [{ worker: 1, afterActions, kind: "exit" }] as const, before = startsSoFar();
      const run = await outcome(SIZES, { ...RUN, ...options, faults });
      const { workers = RUN.workers, replicas = 1 } = options, all = workers * replicas;
      // Workers after the move live in the processes of survivors.
      assert.equal(startsSoFar() - before, options.isolation === "process" ? all : 0);
      const [resize, ...others] = eventsOf(run.events, "resize");
      assert.deepEqual(run.bits, (await serial(name)).bits);
      assert.deepEqual(others, []);
      assert.deepEqual([resize?.to.pipelines, resize?.to.depth], [1, depth]);
      assert.ok(resize!.retaken <= 1);
    });
  }
}

Deno.test("a lost worker is replaced until its retries end, and a loss of the only copies restarts all", async () => {
  const evaluation = { every: 1, batches: batchesOf(SIZES, 2) };
  const options = { ...RUN, schedule: "1f1b", replicas: 2, evaluation, retries: 1 } as const;
  const faults = [
    { worker: 1, afterActions: 6, kind: "exit" },
    { worker: 1, afterActions: 9, kind: "exit" },
    { worker: 1, afterActions: 30, kind: "exit" },
  ] as const;
  const run = await outcome(SIZES, { ...options, faults });
  const depths = eventsOf(run.events, "resize").map(({ from, to }) => [from, to.depth]);
  assert.deepEqual(depths, [[4, 2], [4, 3]]);
  assert.deepEqual(eventsOf(run.events, "failure").map(({ actor }) => actor), ["worker-1"]);
  assert.deepEqual(run.bits, (await outcome(SIZES, { ...options, runtime: "serial" })).bits);
});

Deno.test("a loss after the last step is reported, too", async () => {
  const sizes = { ...SIZES, steps: 1 }, evaluation = { every: 1, batches: batchesOf(SIZES, 2) };
  const options = { ...RUN, replicas: 2, retries: 1, evaluation } as const;
  for (const [failover, type] of [["resize", "resize"], ["restart", "failure"]] as const) {
    using threads = watchThreads();
    const { events } = await outcome(sizes, { ...options, failover }, ({ type }) => {
      if (type === "step") [...threads.living][1]!.terminate();
    });
    assert.deepEqual(eventsOf(events, type).map(({ step }) => step), [1]);
  }
});

const SPARES = [
  ["takes the place of a lost one", Infinity, ["home-1", "home-2"]],
  ["that cannot start leaves the run to the others", 3, ["home-1"]],
] as const;
for (const [what, failing, homes] of SPARES) {
  Deno.test(`a spare process ${what}`, async () => {
    const { microBatches } = SIZES, steps = 6, lines: string[] = [];
    const { spawn } = Deno.Command.prototype;
    let starts = 0;
    Deno.Command.prototype.spawn = function () {
      if (++starts >= failing) throw new Deno.errors.NotFound();
      return spawn.call(this);
    };
    async function* data() {
      for (const [i, batch] of batchesOf(SIZES, 64).entries()) {
        while (i === microBatches && starts < 3) await delay(20);
        yield batch;
      }
    }
    const faults = [24, 40].map((afterActions) =>
      ({ worker: 1, afterActions, kind: "exit" }) as const
    );
    const run = train({
      ...{ ...RUN, schedule: "1f1b", buddy: true, isolation: "process", clip: 0, retries: 2 },
      ...{ model: gpt2(SIZES, SIZES.microBatch), data: data(), steps, microBatches, faults },
      announce: (line) => void lines.push(line),
    });
    await Array.fromAsync(run).finally(() => Deno.Command.prototype.spawn = spawn);
    const lost = lines.flatMap((line) =>
      /the process of "(home-\d)" has ended/.exec(line)?.[1] ?? []
    );
    assert.deepEqual(lost, homes);
  });
}

const MODULE = new URL("../pipeline/flipped_stage.ts", import.meta.url).href;

for (const isolation of atDepth(["worker"] as const, ["worker", "process"] as const)) {
  Deno.test(`a ${isolation} whose sums are wrong in two steps is excluded, and changes no bit`, async () => {
    const lines: string[] = [], announce = (line: string) => void lines.push(line);
    const { microBatches, steps } = SIZES, model = gpt2(SIZES, SIZES.microBatch);
    const prepared = await prepareRun({
      ...{ ...RUN, schedule: "1f1b", replicas: 2, verify: "sums", isolation, announce },
      ...{ model, steps, microBatches, data: batchesOf(SIZES, 64) },
    });
    await using data = new RunData(prepared);
    await data.begin();
    const moments = ["exp_avg", "exp_avg_sq"];
    const kernels = { module: MODULE, export: "openWrongStage", moments };
    const worker = { module: MODULE, export: "wrongWorker" };
    const run = await openRun({ ...prepared, kernels, worker }, data);
    const events = await Array.fromAsync(run.events());
    assert.equal(lines.filter((line) => line.endsWith("the step is taken again")).length, 2);
    assert.match(lines.join("\n"), /worker-3 is excluded: its results were wrong 2 times/);
    assert.deepEqual(eventsOf(events, "resize").map(({ step, to }) => [step, to.depth]), [[4, 3]]);
    const [end] = eventsOf(events, "end"), { bits } = await serial(THREADS);
    assert.equal(end!.weightsHash, bits.hash);
  });
}

/** Losses in a row, of each worker in turn, some in the middle of a step. */
const STORM = 100;

deepTest(`${STORM} losses in a row change no bit, and cost less than 2 MiB each`, async () => {
  const sizes = { ...SIZES, steps: 2 * STORM }, rss: number[] = [];
  const faults = Array.from(
    { length: STORM },
    (_, n) => ({ worker: n % 4, afterActions: 5 + n % 30, kind: "exit" } as const),
  );
  const announce = (line: string) =>
    void (line.includes("the run continues on 4") && rss.push(Deno.memoryUsage().rss / 2 ** 20));
  const options = { ...RUN, schedule: "1f1b", replicas: 2, retries: STORM, announce } as const;
  const run = await outcome(sizes, { ...options, faults });
  const serial = await outcome(sizes, { ...options, runtime: "serial" });
  assert.deepEqual(run.bits, serial.bits);
  const moves = eventsOf(run.events, "resize");
  const again = moves.reduce((sum, { retaken }) => sum + retaken, 0);
  const mean = (from: number) => rss.slice(from, from + 25).reduce((sum, one) => sum + one / 25, 0);
  const growth = (mean(75) - mean(25)) / 50;
  // deno-lint-ignore no-console -- the counts of the deep tier
  console.log(`${moves.length} moves, ${again} steps taken again, ${growth} MiB each`);
  assert.equal(moves.length + eventsOf(run.events, "failure").length, STORM);
  assert.ok(growth < 2, rss.join());
});

folderTest("with fewer workers than --min-workers a run ends with a checkpoint", async (folder) => {
  const { microBatches, steps } = SIZES;
  const faults = [{ worker: 1, afterActions: 20, kind: "exit" }] as const;
  const run = train({
    ...{ ...RUN, model: gpt2(SIZES, SIZES.microBatch), data: batchesOf(SIZES, 64), steps, faults },
    ...{ microBatches, schedule: "1f1b", replicas: 2, minWorkers: 4 },
    checkpoint: { directory: folder },
  });
  await assert.rejects(Array.fromAsync(run), {
    name: "TooFewWorkersError",
    message: /^Cannot continue: there must be 4 workers, received 3; worker-1 failed in step 2/,
    exitCode: 75,
  });
  assert.ok((await namesIn(folder)).includes("step-00000001"));
});

const CHIMERA_IN_HALVES = { schedule: "chimera", scheduleOptions: { scale: "halving" } } as const;

Deno.test("stages that nothing can mirror, and runs that cannot move, are refused", async () => {
  const mirror = (options: Partial<TrainOptions>) =>
    outcome(SIZES, { ...RUN, schedule: "1f1b", buddy: true, ...options });
  const move = (options: Partial<TrainOptions>) =>
    outcome(SIZES, { ...RUN, replicas: 2, ...options });
  await assertRefused("failover", [
    () => mirror({ replicas: 2 }),
    () => mirror({ workers: 1 }),
    () => mirror({ failover: "restart" }),
    () => move({ reduce: "fast", schedule: "1f1b" }),
    () => move({ worker: { module: MODULE, export: "wrongWorker" } }),
    () => move({ schedule: "pipedream", replicas: 1 }),
    () => move(CHIMERA_IN_HALVES),
  ]);
});
