/**
 * Tests on the four ranks of one job: rank 0 runs them with `deno test`, the others follow. With the
 * argument "smoke" or "hosts" there are a few.
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import {
  locateCheckpoint,
  train,
  type TrainOptions,
  type WorkerFault,
} from "../../../../actors/mod.ts";
import { follow, isFollower, lead, rankTransport } from "../../../../actors/run/mpi_run.ts";
import type { Batch } from "../../../../kernels/mod.ts";
import { atDepth, IS_DEEP } from "../../../depth.ts";
import { inFolder, namesIn } from "../../../in_folder.ts";
import { once, outcome, type Sizes } from "../../runs.ts";
import { B, batch, RINGS } from "../../run/own_layers.ts";
import { runContract } from "../contract.ts";
import { CROSSINGS } from "../contract/isolates.ts";
import { MESSAGES } from "../contract/messages.ts";
import { STOPS } from "../contract/stops.ts";
import { type Place, register } from "../contract/suite.ts";
import { addOnce, COLUMNS, RANKS } from "./job_sums.ts";

if (isFollower()) {
  await follow({});
  Deno.exit(0);
}
const job = await lead({}), isAll = Deno.args.length === 0;

/** Registers a test, while the threads of the job go on. */
const jobTest = (name: string, fn: () => Promise<void>) =>
  Deno.test({ name, sanitizeResources: false, sanitizeOps: false, fn });

const SIZES: Sizes = {
  ...{ layers: 4, hidden: 16, heads: 2, seq: 8, vocab: 64 },
  ...{ microBatch: 2, microBatches: 4, steps: 4 },
};

type Run = Partial<TrainOptions>;

const TIED: Sizes = { ...SIZES, tie: true };

const bitsOf = async (run: Run, sizes = SIZES) => (await outcome(sizes, run)).bits;

/** The bits of a run in one isolate; made once. */
const bitsHere = once((_: string, run: Run, sizes: Sizes) =>
  bitsOf({ ...run, runtime: "local" }, sizes)
);
const localBits = (run: Run, sizes = SIZES) => bitsHere(JSON.stringify([run, sizes]), run, sizes);

/** Has a run on the first ranks. */
function onRanks(run: Run): Run {
  const map = Array.from({ length: run.workers! * (run.replicas ?? 1) }, (_, rank) => rank);
  return { mpi: { map }, ...run, runtime: "mpi" };
}

const PLACE: Place = { isolate: "mpi", transport: await rankTransport({}, [0, 1, 2, 3]) };

if (IS_DEEP && isAll) runContract(PLACE);
else for (const suite of isAll ? [MESSAGES, STOPS, CROSSINGS] : [STOPS]) register(PLACE, suite);

jobTest("sums have the same bits in all members, and half-begun sums disturb none", async () => {
  for (let n = 0; n < 2; n++) await addOnce(await rankTransport({}, RANKS, COLUMNS));
});

const CHIMERA: Run = { schedule: "chimera", workers: 2, replicas: 2, steps: 2 };

const SCHEDULES: readonly Run[] = [
  { schedule: "message-driven", workers: 4, steps: 2 },
  ...atDepth<Run[]>([], [
    { schedule: "zb-v", workers: 2, replicas: 2 },
    { schedule: "1f1b", workers: 4 },
    { schedule: "pipedream-2bw", workers: 4 },
  ]),
];

if (isAll || Deno.args[0] === "hosts") {
  jobTest("ranks train with the bits of one isolate", async () => {
    for (const run of SCHEDULES) {
      assert.deepEqual(await bitsOf(onRanks(run)), await localBits(run), `${run.schedule}`);
    }
  });
}

/** Many chunks, sums that begin while others compute, and a decision that waits for them. */
const HARD: Run = { bucketSize: 500, coarsening: 1, sync: "eager", clip: 0.5, steps: 2 };

/** For sums of four numbers in another order, after a few steps; measured: 1.7e-8. */
const TOLERANCE = 1e-6;

/** Layouts of a schedule on the ranks. */
const LAYOUTS: readonly (readonly [what: string, run: Run, map: number[]])[] = [
  ["two copies on a rank", CHIMERA, [0, 1, 1, 0]],
  ["f16", { schedule: "1f1b", workers: 1, replicas: 3, precision: "fp16" }, [0, 1, 3]],
  ...atDepth<[string, Run, number[]][]>([], [["a copy a rank", CHIMERA, [0, 1, 2, 3]]]),
];

jobTest("MPI adds gradients as the copies do, except for the order of sums", async () => {
  for (const [what, layout, map] of isAll ? LAYOUTS : LAYOUTS.slice(0, 1)) {
    const run = { ...layout, ...HARD };
    const byMpi = await bitsOf(onRanks({ ...run, reduce: "mpi", mpi: { map } }));
    const [one, other] = [byMpi, await localBits(run)]
      .map(({ losses, norms }) => [...losses, ...norms]) as [number[], number[]];
    assert.equal(one.length, 4);
    const apart = Math.max(...one.map((figure, j) => Math.abs(figure / other[j]! - 1)));
    assert.ok(apart < TOLERANCE, `${what}: losses or norms differ by ${apart}`);
  }
});

/** Micro-batches of a step. */
const N = 4;

/** Micro-batches of good steps, and of bad ones, whose gradients overflow. */
function* dataOf(steps: readonly ("good" | "bad")[]): Generator<Batch, void> {
  let good = 0;
  for (const kind of steps) {
    for (let m = 0; m < N; m++) {
      if (kind === "good") yield batch(good++);
      else yield { ...batch(m), points: new Float32Array(2 * B).fill(2000) } as Batch;
    }
  }
}

/** Trains in fp16 with sums of two copies, so of any order; returns what is said of it, and the hash. */
async function runRings(steps: readonly ("good" | "bad")[], run: Run) {
  const said: string[] = [];
  for await (
    const event of train({
      ...{ model: RINGS, data: dataOf(steps), steps: steps.length, microBatches: N },
      ...{ workers: 2, schedule: "chimera", device: "native", precision: "fp16" },
      ...{ lossScale: 256, learningRate: 0.01, sync: "eager", bucketSize: 8, coarsening: 1 },
      announce: (line) => said.push(line),
      ...run,
    })
  ) {
    said.push(event.type);
    if (event.type === "end") return { said, hash: event.weightsHash };
  }
  throw new Error("a run must end");
}

if (isAll) {
  jobTest(
    "a step that is given up and a worker that fails leave no trace in later sums",
    async () => {
      const plain = await runRings(["good", "good", "good"], { runtime: "local" });
      const hard = await runRings(["good", "bad", "good", "good"], {
        ...onRanks({ workers: 2, reduce: "mpi" }),
        faults: [{ worker: 1, afterActions: 21, kind: "throw" }],
      });
      for (const what of [/^skip$/, /a fault was asked for/]) {
        assert.ok(hard.said.some((one) => what.test(one)), `${hard.said}`);
        assert.ok(!plain.said.some((one) => what.test(one)), `${plain.said}`);
      }
      assert.equal(hard.hash, plain.hash);
    },
  );
}

/** Runs on four ranks, then here, then on some ranks, each resumed from the one before. */
const CHAINS: readonly (readonly [Run, Run, Run])[] = [
  // Each worker holds two stages, and of one of them the first copy.
  [CHIMERA, CHIMERA, { ...CHIMERA, mpi: { map: [0, 1, 1, 0] } }],
  ...atDepth<(readonly [Run, Run, Run])[]>([], [[
    { schedule: "1f1b", workers: 2, replicas: 2 },
    { schedule: "zb-h1", workers: 3, replicas: 2 },
    { schedule: "gpipe", workers: 1, replicas: 2 },
  ]]),
];

async function assertChain([first, second, third]: readonly [Run, Run, Run], out: string) {
  const whole = await localBits({ ...first, steps: 4 }, TIED);
  const resumed = async (run: Run, steps: number) => {
    const checkpoint = { directory: out, every: 1, config: {} };
    const resume = await locateCheckpoint(out);
    return await bitsOf({ ...run, steps, checkpoint, resume }, TIED);
  };
  const { losses } = await resumed(onRanks(first), 2);
  assert.deepEqual(losses, whole.losses.slice(0, 2), `${first.schedule}`);
  for (const step of ["step-00000001", "step-00000002"]) {
    const shards = (await namesIn(join(out, step))).filter((name) => /-of-00002/.test(name));
    assert.equal(shards.length, 4, "two of weights and two of moments");
  }
  const here = await resumed({ ...second, runtime: "local" }, 3);
  assert.deepEqual(here.losses, whole.losses.slice(2, 3), `${second.schedule}`);
  assert.ok((await namesIn(join(out, "step-00000003"))).includes("model.safetensors"));
  const last = await resumed(onRanks(third), 4);
  assert.deepEqual(
    [last.losses, last.hash],
    [whole.losses.slice(3), whole.hash],
    `${third.schedule}`,
  );
  // Both ends of the pipeline need the weights that are tied.
  const weights = join(out, "step-00000001"), run: Run = { schedule: "1f1b", workers: 2, steps: 1 };
  const from = await bitsOf({ ...onRanks(run), weights }, TIED);
  assert.deepEqual(from, await bitsOf({ ...run, weights, runtime: "local" }, TIED));
}

/** A run of ranks with two faults, resumed from its own shards. */
async function assertFaulty(folder: string) {
  const announced: string[] = [];
  // Without flushes the pipe must run empty in the same steps, those with a checkpoint.
  const runOf = (runtime: "mpi" | "local"): Run => ({
    ...{ schedule: "pipedream-2bw", workers: 2, steps: 8 },
    checkpoint: { directory: join(folder, runtime), every: 3, config: {} },
  });
  const faults: WorkerFault[] = [
    { worker: 1, afterActions: 40, kind: "throw" },
    { worker: 0, afterActions: 14, kind: "close" },
  ];
  const announce = (line: string) => announced.push(line);
  const faulty = await bitsOf({ ...onRanks(runOf("mpi")), faults, announce });
  assert.deepEqual(faulty, await bitsOf({ ...runOf("local"), runtime: "local" }));
  const resumed = announced.filter((line) =>
    line.endsWith("going on from the last committed step")
  );
  assert.equal(resumed.length, 2, `${announced}`);
}

if (isAll) {
  jobTest(
    "ranks write shards of checkpoints, from which other layouts resume, with tied weights too",
    async () => {
      for (const chain of CHAINS) {
        await inFolder((folder) => assertChain(chain, join(folder, "out")));
      }
    },
  );

  jobTest(
    "workers that fail in a job resume from its shards, with the same bits",
    () => inFolder(assertFaulty),
  );
}

jobTest("the job ends", async () => await job[Symbol.asyncDispose]());
