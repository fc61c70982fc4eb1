/**
 * Tests on the four ranks of one job: rank 0 runs them with `deno test`, the others follow. With the
 * argument "smoke" there are a few, with "rest" the others.
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { locateCheckpoint } from "../../../../actors/checkpoints/read.ts";
import type { TrainOptions } from "../../../../actors/options/train_options.ts";
import { follow, isFollower, lead, rankTransport } from "../../../../actors/run/mpi_run.ts";
import { train } from "../../../../actors/run/train.ts";
import { compileModel, gpt2 } from "../../../../kernels/mod.ts";
import { atDepth } from "../../../depth.ts";
import { inFolder, namesIn } from "../../../in_folder.ts";
import { batchesOf, outcome, type Sizes, trained, unequalBatches } from "../../runs.ts";
import { drawWeights } from "../../../kernels/stage/stage_runs.ts";
import { dataOfSteps, RINGS, type StepKind } from "../../run/own_layers.ts";
import { runContract } from "../contract.ts";
import { ARRIVALS, CROSSINGS } from "../contract/isolates.ts";
import { MESSAGES } from "../contract/messages.ts";
import { STOPS } from "../contract/stops.ts";
import type { Place } from "../contract/suite.ts";
import { addOnce, COLUMNS, RANKS } from "./job_sums.ts";

if (isFollower()) {
  await follow({});
  Deno.exit(0);
}
const job = await lead({}), hasSmoke = Deno.args[0] !== "rest", hasRest = Deno.args[0] !== "smoke";

/** Registers a test that runs while the threads of the job keep running. */
const jobTest = (name: string, fn: () => Promise<void>) =>
  Deno.test({ name, sanitizeResources: false, sanitizeOps: false, fn });

const SIZES: Sizes = {
  ...{ layers: 4, hidden: 16, heads: 2, seq: 8, vocab: 64 },
  ...{ microBatch: 2, microBatches: 4, steps: 4 },
};

type Run = Partial<TrainOptions>;

const bitsOf = async (run: Run, sizes = SIZES) => (await outcome(sizes, run)).bits;
const bitsHere = (run: Run, sizes = SIZES) => bitsOf({ ...run, runtime: "local" }, sizes);

/** Places a run on the first ranks. */
function onRanks(run: Run): Run {
  const map = Array.from({ length: run.workers! * (run.replicas ?? 1) }, (_, rank) => rank);
  return { mpi: { map }, ...run, runtime: "mpi" };
}

const PLACE: Place = { isolate: "mpi", transport: await rankTransport({}, [0, 1, 2, 3]) };

if (hasRest) runContract(PLACE, [MESSAGES, STOPS, CROSSINGS, ARRIVALS]);

/** Trains two adapters on one pipeline; returns the hash of each. */
async function trainJobs(run: Run): Promise<Record<string, string>> {
  const data = batchesOf(SIZES), lora = { rank: 2, target: ["c_attn"] };
  const later = { name: "two", data: data.slice(3), lora, start: 2, steps: 1 };
  const jobs = [{ name: "one", data, lora }, later];
  const model = gpt2(SIZES, SIZES.microBatch), hashes: Record<string, string> = {};
  const weights = drawWeights(compileModel(model, "none"));
  const options = { model, weights, jobs, microBatches: 4, steps: 2, device: "reference" } as const;
  for await (const event of train({ ...options, workers: 2, ...run })) {
    if (event.type === "job") hashes[event.job] = event.weightsHash;
  }
  return hashes;
}

async function assertJobs() {
  const here = await trainJobs({ runtime: "local" });
  assert.deepEqual(Object.keys(here).sort(), ["one", "two"]);
  assert.deepEqual(await trainJobs(onRanks({ workers: 2 })), here);
}

async function assertSums() {
  for (let n = 0; n < 2; n++) await addOnce(await rankTransport({}, RANKS, COLUMNS));
}

const CHIMERA: Run = { schedule: "chimera", workers: 2, replicas: 2, steps: 2 };

const SCHEDULES: readonly Run[] = [
  { schedule: "message-driven", workers: 4, steps: 2 },
  // Two stages on each rank, and samples of different lengths.
  ...atDepth<Partial<TrainOptions>[]>([], [{
    ...{ schedule: "message-driven", workers: 2, replicas: 2, steps: 1, lengths: true },
    data: unequalBatches(SIZES, 8),
    scheduleOptions: { chunks: 2, weightBacklog: "all", activationLimit: 4, limitBy: "bytes" },
  }]),
  ...atDepth<Run[]>([], [
    { schedule: "zb-v", workers: 2, replicas: 2 },
    { schedule: "1f1b", workers: 4 },
    { schedule: "pipedream-2bw", workers: 4 },
  ]),
];

async function assertBits() {
  for (const run of SCHEDULES) {
    assert.deepEqual(await bitsOf(onRanks(run)), await bitsHere(run), `${run.schedule}`);
  }
}

/** Many chunks, sums that start while others compute, and a decision that waits for them. */
const HARD: Run = { bucketSize: 500, coarsening: 1, sync: "eager", clip: 0.5, steps: 2 };

/** For sums of four numbers in another order, after a few steps; measured: 1.7e-8. */
const TOLERANCE = 1e-6;

/** Layouts of a schedule on the ranks: two copies on a rank, three at half precision, one on each. */
const LAYOUTS: readonly Run[] = [
  { ...CHIMERA, mpi: { map: [0, 1, 1, 0] } },
  ...atDepth<Run[]>([], [
    { schedule: "1f1b", workers: 1, replicas: 3, precision: "fp16", mpi: { map: [0, 1, 3] } },
    CHIMERA,
  ]),
];

async function assertReduced() {
  for (const layout of LAYOUTS) {
    const run = { ...layout, ...HARD };
    const [one, other] = [await bitsOf(onRanks({ ...run, reduce: "mpi" })), await bitsHere(run)]
      .map(({ losses, norms }) => [...losses, ...norms]) as [number[], number[]];
    assert.equal(one.length, 4);
    const apart = Math.max(...one.map((figure, j) => Math.abs(figure / other[j]! - 1)));
    assert.ok(apart < TOLERANCE, `${layout.schedule}: losses or norms differ by ${apart}`);
  }
}

/** Trains in fp16 with sums of two copies, so the order does not matter; returns the output and the hash. */
async function trainRings(steps: readonly StepKind[], run: Run) {
  const said: string[] = [];
  const { events, bits: { hash } } = await trained({
    ...{ model: RINGS, data: dataOfSteps(steps), steps: steps.length, microBatches: 4 },
    ...{ workers: 2, schedule: "chimera", device: "native", precision: "fp16" },
    ...{ lossScale: 256, learningRate: 0.01, sync: "eager", bucketSize: 8, coarsening: 1 },
    announce: (line) => said.push(line),
    ...run,
  });
  return { said: [...said, ...events.map(({ type }) => type)].join("\n"), hash };
}

async function assertNoTrace() {
  const plain = await trainRings(["good", "good", "good"], { runtime: "local" });
  const hard = await trainRings(["good", "bad", "good", "good"], {
    ...onRanks({ workers: 2, reduce: "mpi" }),
    faults: [{ worker: 1, afterActions: 21, kind: "throw" }],
  });
  for (const what of [/^skip$/m, /a fault was asked for/]) {
    assert.match(hard.said, what);
    assert.doesNotMatch(plain.said, what);
  }
  assert.equal(hard.hash, plain.hash);
}

/** Trains on four ranks, then here, then on some ranks, each resumed from the one before. */
async function assertChain(out: string) {
  const tied = { ...SIZES, tie: true }, whole = await bitsHere({ ...CHIMERA, steps: 4 }, tied);
  const resumed = async (run: Run, steps: number) => {
    const checkpoint = { directory: out, every: 1, config: {} };
    return await bitsOf({ ...run, steps, checkpoint, resume: await locateCheckpoint(out) }, tied);
  };
  const { losses } = await resumed(onRanks(CHIMERA), 2);
  // Each worker holds two stages, and of one of them the first copy.
  for (const step of ["step-00000001", "step-00000002"]) {
    const shards = (await namesIn(join(out, step))).filter((name) => /-of-00002/.test(name));
    assert.equal(shards.length, 4, "two of weights and two of moments");
  }
  const here = await resumed({ ...CHIMERA, runtime: "local" }, 3);
  assert.ok((await namesIn(join(out, "step-00000003"))).includes("model.safetensors"));
  const last = await resumed(onRanks({ ...CHIMERA, mpi: { map: [0, 1, 1, 0] } }), 4);
  const all = [...losses, ...here.losses, ...last.losses];
  assert.deepEqual([all, last.hash], [whole.losses, whole.hash]);
  // Both ends of the pipeline need the weights that are tied.
  const run: Run = { schedule: "1f1b", workers: 2, steps: 1, weights: join(out, "step-00000001") };
  assert.deepEqual(await bitsOf(onRanks(run), tied), await bitsHere(run, tied));
}

/** Trains on ranks with two faults, resumed from its own shards. */
async function assertFaulty(folder: string) {
  let resumes = 0;
  // Without flushes the pipe must run empty in the same steps, those with a checkpoint.
  const runOf = (runtime: string): Run => ({
    ...{ schedule: "pipedream-2bw", workers: 2, steps: 8 },
    checkpoint: { directory: join(folder, runtime), every: 3, config: {} },
  });
  const faulty = await bitsOf({
    ...onRanks(runOf("mpi")),
    faults: [
      { worker: 1, afterActions: 40, kind: "throw" },
      { worker: 0, afterActions: 14, kind: "close" },
    ],
    announce: (line) =>
      resumes += Number(line.endsWith("the run continues from the last committed step")),
  });
  assert.deepEqual(faulty, await bitsHere(runOf("local")));
  assert.equal(resumes, 2);
}

if (hasSmoke) {
  jobTest("sums have the same bits in all members, and half-begun ones disturb none", assertSums);
  jobTest("ranks train with the bits of one isolate", assertBits);
  jobTest("MPI adds gradients as the copies do, except for the order of sums", assertReduced);
}
if (hasRest) {
  jobTest("jobs on one pipeline of ranks have the bits of one isolate", assertJobs);
  jobTest("a step given up and a worker that fails leave no trace in later sums", assertNoTrace);
  jobTest("ranks write shards, from which other layouts resume", () => inFolder(assertChain));
  jobTest("workers that fail resume from shards, with the same bits", () => inFolder(assertFaulty));
}
jobTest("the job ends", async () => await job[Symbol.asyncDispose]());
