/**
 * The commit of a step: votes, the decision, the norm and its clipping, the loss and its scale,
 * early sums, and the end of started sums when a step is abandoned.
 */

import assert from "node:assert/strict";
import { firstLossScale, nextLossScale, SCALE_MAX } from "../../../actors/gradients/commit.ts";
import type { ReduceAlgorithm } from "../../../actors/gradients/all_reduce.ts";
import {
  areFinite,
  clipFactor,
  CommitDecision,
  type DecisionOptions,
  gradientNorm,
  meanLoss,
  meanNorm,
} from "../../../actors/gradients/commit.ts";
import {
  CHUNKS_IN_TRANSIT,
  eagerStages,
  GradientSync,
  type SyncedCopy,
} from "../../../actors/gradients/sync.ts";
import { createSchedule } from "../../../schedules/mod.ts";

const TWO_STAGES: DecisionOptions = { copies: [2, 1], workers: 3, eagerStages: [] };

/** A decision after the votes of all copies. */
function decided(options: Partial<DecisionOptions> = {}, votes = [true, true, true]) {
  const decision = new CommitDecision({ ...TWO_STAGES, ...options });
  for (const [i, vote] of votes.entries()) decision.vote([0, 0, 1][i]!, vote);
  return decision;
}

Deno.test("a step is committed when all copies have voted for it and all losses are finite", () => {
  const decision = decided({}, [true, true]);
  assert.equal(decision.hasAllVotes, false);
  decision.vote(1, true);
  assert.equal(decision.hasAllVotes, true);
  assert.deepEqual(decision.decide(true, 8), { isCommitted: true, gradientScale: 1 / 8 });
  assert.deepEqual(decision.decide(false, 8), { isCommitted: false });
  for (const votes of [[false, true, true], [true, true, false]]) {
    assert.deepEqual(decided({}, votes).decide(true, 8), { isCommitted: false });
  }
});

Deno.test("sums start once for each stage: after the votes of all, or early after those of its copies", () => {
  assert.deepEqual(decided({}, [true, true]).startReducing(), []);
  assert.deepEqual(decided().startReducing(), [0, 1]);
  const eager = decided({ eagerStages: [0] }, [true]);
  assert.deepEqual(eager.startReducing(), []);
  eager.vote(0, true);
  assert.deepEqual([eager.startReducing(), eager.startReducing()], [[0], []]);
  eager.vote(1, true);
  assert.deepEqual([eager.startReducing(), eager.startReducing()], [[1], []]);
  assert.deepEqual(decided({ eagerStages: [0] }, [false, true]).startReducing(), []);
});

Deno.test("a clipped step waits for the sums of all workers, and its scale is that of the unscaled norm", () => {
  const decision = decided({ clip: 1 });
  for (const squares of [{ a: (3 * 8) ** 2 }, { b: (4 * 8) ** 2 }, {}]) {
    assert.equal(decision.decide(true, 8), undefined);
    decision.addSquares(new Map(Object.entries(squares)));
  }
  const gradientScale = 1 / (5 + 1e-6) / 8;
  assert.deepEqual(decision.decide(true, 8), { isCommitted: true, gradientScale });
  assert.equal(clipFactor(6, decision.squares, 8), 1);
  assert.equal(clipFactor(undefined, decision.squares, 8), 1);
});

const SMALLS = Array.from({ length: 64 }, (_, i) => `b${i}`);

Deno.test("sums of squares are added in the order of their names, losses in the order of micro-batches", () => {
  // After the large number each of the small ones is rounded away; before it they count.
  const one = new Map([...SMALLS.map((name) => [name, 1] as const), ["a", 2 ** 53]]);
  assert.equal(gradientNorm(one), Math.sqrt(2 ** 53));
  assert.equal(meanNorm([one, new Map([["a", 4]])]), (Math.sqrt(2 ** 53) + 2) / 2);
  const large = Float32Array.of(2 ** 53), small = new Float32Array(64).fill(1);
  assert.equal(meanLoss([large, small], 4), 2 ** 53 / 4);
  assert.equal(meanLoss([small, large], 4), (2 ** 53 + 64) / 4);
});

Deno.test("one loss or one sum of squares that is not finite is enough", () => {
  const fine = [Float32Array.of(1, 2)], squares = new Map([["a", 1]]);
  assert.equal(areFinite(fine, [squares]), true);
  assert.equal(areFinite([...fine, Float32Array.of(1, NaN)], []), false);
  assert.equal(areFinite(fine, [squares, new Map([["a", 1], ["b", Infinity]])]), false);
});

Deno.test("a dynamic loss scale doubles after exactly 2000 good steps in a row, up to what FP16 can use", () => {
  let state = nextLossScale("dynamic", firstLossScale("dynamic"), false);
  for (let step = 1; step < 2000; step++) state = nextLossScale("dynamic", state, true);
  assert.equal(state.scale, 32_768);
  state = nextLossScale("dynamic", state, true);
  assert.deepEqual(state, { scale: 65_536, goodSteps: 0, skipped: 0 });
  state = nextLossScale("dynamic", { ...state, goodSteps: 7 }, false);
  assert.deepEqual(state, { scale: 32_768, goodSteps: 0, skipped: 1 });
  const highest = { scale: SCALE_MAX, goodSteps: 1999, skipped: 0 };
  assert.deepEqual(nextLossScale("dynamic", highest, true), { ...highest, goodSteps: 0 });
});

Deno.test("eager-opt starts early only where each worker has idle time after the stage's last backward", () => {
  const stages = (name: string, workers: number) =>
    eagerStages(createSchedule(name, { workers, microBatches: workers }), "eager-opt");
  // Stage 0 and the stages of the middle workers finish with their worker: no time is left there.
  assert.deepEqual(stages("chimera", 4), [3]);
  assert.deepEqual(stages("hanayo", 4), [5, 6, 7]);
  // With one stage for each worker every last backward is the worker's last action.
  for (const name of ["gpipe", "1f1b", "zb-h1"]) assert.deepEqual(stages(name, 4), [], name);
  assert.deepEqual(stages("interleaved", 2), []);
});

const BUCKETS = 5, LENGTH = 3;

/** A copy of a stage with some buckets; no optimizer step runs on it. */
function copyOf(stage: number, rank = 0): SyncedCopy {
  const offsets = Array.from({ length: BUCKETS }, (_, i) => i * LENGTH);
  const buckets = offsets.map((offset) => ({ offset, length: LENGTH }));
  const readGradients = (_: number, length: number) => Promise.resolve(new Float32Array(length));
  const own = { gradientSquares: () => [], writeGradients() {} };
  return { stage, rank, kernels: { buckets, readGradients, ...own } as never };
}

const SYNC = { coarsening: 1, shared: [], ties: [[], []], dtype: "f32" } as const;

const fail = () => assert.fail();
/** The events of a sync, none of which may come. */
const SILENT = { sendPart: fail, sendTie: fail, sendMirror: fail, wake: fail, reduced: fail };

Deno.test("the sums of a worker are there once those that it mirrors are, too", async () => {
  const said: string[] = [];
  const mirrored = { ...SYNC, algorithm: "direct", size: 1, mirrored: new Set([0]) } as const;
  const sync = new GradientSync([copyOf(0), copyOf(1, 1)], mirrored, {
    ...SILENT,
    sendMirror: (stage, { length }) => void said.push(`${length} sums of stage ${stage}`),
    wake() {},
    reduced: () => void said.push("reduced"),
  });
  await sync.reduce([0]);
  assert.deepEqual(said, ["15 sums of stage 0"]);
  await sync.receiveMirror(1, new Float32Array(BUCKETS * LENGTH));
  assert.deepEqual(said, ["15 sums of stage 0", "reduced"]);
});

/** Returns the chunks sent for each stage when only the all-reduce of stage 1 runs and is abandoned. */
async function sentBy(algorithm: ReduceAlgorithm): Promise<number[][]> {
  const sent: number[][] = [[], []];
  const sync = new GradientSync([0, 1].map(copyOf), { ...SYNC, algorithm, size: 2 }, {
    ...SILENT,
    sendPart: (stage, _, { chunk }) => void sent[stage]!.push(chunk),
  });
  await sync.reduce([1]);
  assert.deepEqual(sent, [[], [0, 1].slice(0, CHUNKS_IN_TRANSIT)]);
  await sync.giveUp();
  return sent;
}

Deno.test("a step that is given up begins all sums that the network may have begun, and no messages", async () => {
  assert.deepEqual(await sentBy("collective"), [[], [0, 1, 2, 3, 4]]);
  assert.deepEqual(await sentBy("direct"), [[], [0, 1]]);
});
