/**
 * Simulated training with checkpoints on a disk that fails, and restarts from the remaining files.
 *
 * @module
 */

import { assertInput } from "../../kernels/internal.ts";
import { folderEntries, hashWeights, stepFolders } from "../checkpoints/format.ts";
import { type BestCheckpoint, readBest } from "../checkpoints/markers.ts";
import type { Checkpoint } from "../checkpoints/format.ts";
import { readCheckpoint } from "../checkpoints/read.ts";
import { heldValues } from "../checkpoints/tensors.ts";
import { CheckpointWriter } from "../run/checkpoint_writer.ts";
import { type Engine, stateShapes } from "../run/engine.ts";
import { openPipeline } from "../run/pipeline.ts";
import { openSerial } from "../run/serial.ts";
import type { Scenario, World } from "../simulation/run.ts";
import type { SimulatedDisk } from "../simulation/disk.ts";
import {
  assertSerial,
  type PreparedSimulation,
  prepareSimulation,
  type SimulatedTrainingOptions,
} from "./simulated_training.ts";

/** Training with checkpoints as plain data. */
export interface SimulatedCheckpointsOptions extends SimulatedTrainingOptions {
  /** Steps from one checkpoint to the next. Default 1. */
  readonly every?: number;
  /** Checkpoints that are kept. Default: all. */
  readonly keep?: number;
  /** The step whose evaluation is the best: each up to it is better than all before. Default: the last. */
  readonly best?: number;
  /**
   * The number of runs, all into the same folder, where each checkpoint replaces that of the run before.
   * Default 1.
   */
  readonly times?: number;
}

/** The result of simulated training with checkpoints. */
export interface SimulatedCheckpointsResult {
  /** Hash of all weights after the last step. */
  readonly weightsHash: string;
  /** Steps from which the program was started: 0, then one for each failure. */
  readonly starts: readonly number[];
}

/** The folder of checkpoints, which does not exist at first. */
const DIRECTORY = "/runs/mine";

/** The checkpoints that must be on the disk after any failure. */
interface Promised {
  /** The newest step whose checkpoint was reported as complete. */
  step: number;
  /** The best of these steps. */
  best: number;
}

/**
 * The scenario of simulated training with checkpoints: the real supervisor and workers train, the
 * real writer writes their weights to the disk of the world, and after each failure of the disk the
 * program restarts with the remaining files. The newest checkpoint that was reported as complete, or a
 * newer one, must be there with the weights of its step, bit for bit; the weights at the end must be
 * those of training without failures.
 *
 * @throws {Error} (and so fails the run) if a checkpoint is lost, or a torn one is accepted.
 *
 * @example Whatever the disk forgets, nothing is lost
 * ```ts
 * import { simulatedCheckpoints } from "@troupe/troupe/actors";
 * import { explore } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const configuration = { schedule: "gpipe", workers: 2, microBatches: 2, replicas: 1, steps: 2 };
 * const { failed } = await explore({
 *   configuration,
 *   faults: { kinds: ["disk-full", "disk-torn", "disk-reordered"], max: 3, rate: 0.05 },
 *   runs: 20,
 *   mustAgree: false,
 * }, simulatedCheckpoints);
 * assert.equal(failed, undefined);
 * ```
 */
export const simulatedCheckpoints: Scenario<
  SimulatedCheckpointsResult,
  SimulatedCheckpointsOptions
> = async (
  world: World<SimulatedCheckpointsOptions>,
): Promise<SimulatedCheckpointsResult> => {
  const { configuration: plan, disk } = world,
    prepared = await recalled.getOrInsertComputed(plan, prepare);
  const promised: Promised = { step: 0, best: 0 }, starts: number[] = [];
  for (let time = 1, isNew = true;;) {
    try {
      const found = await readCheckpoint(DIRECTORY, undefined, disk);
      verify(found, promised, prepared);
      await verifyBest(disk, promised, prepared);
      const from = isNew ? undefined : found;
      isNew = false;
      starts.push(from?.step ?? 0);
      const weightsHash = await train(world, prepared, from, promised);
      assertSerial(weightsHash, prepared.hashes.at(-1)!);
      if (time++ >= (plan.times ?? 1)) return { weightsHash, starts };
      isNew = true;
    } catch (error) {
      if (!isDiskFault(error, disk)) throw error;
      if (disk.isDown) disk.restart();
    }
  }
};

/** Prepared simulated training, with the hash of all weights after each step, from 0. */
interface Recalled extends PreparedSimulation {
  readonly hashes: readonly string[];
}

/** Consecutive runs mostly have the same options. */
const recalled = new WeakMap<SimulatedCheckpointsOptions, Promise<Recalled>>();

async function prepare(plan: SimulatedCheckpointsOptions): Promise<Recalled> {
  const prepared = prepareSimulation(plan), engine = await openSerial(prepared.options);
  const hash = async () => hashWeights((await engine.save()).weights);
  const hashes = [await hash()];
  for (const request of prepared.requests) {
    await engine.step(request);
    if (savesAfter(request.step, plan)) await engine.drain();
    hashes.push(await hash());
  }
  await engine.close();
  return { ...prepared, hashes };
}

/** Returns true if the pipe is drained and a checkpoint is written after a step. */
function savesAfter(step: number, { every = 1, steps = 1 }: SimulatedCheckpointsOptions): boolean {
  return step % every === 0 || step === steps;
}

/** Takes the steps after a checkpoint, and writes others, as a program does. */
async function train(
  { configuration, disk, system }: World<SimulatedCheckpointsOptions>,
  { options, requests }: Recalled,
  from: Checkpoint | undefined,
  promised: Promised,
): Promise<string> {
  const { keep, best: last = Infinity } = configuration, state = from?.state ?? options.state;
  const engine: Engine = await openPipeline({ ...options, state, system }, "local");
  try {
    const to = { directory: DIRECTORY, keep, config: { name: "rehearsal" } };
    const writer = new CheckpointWriter(to, () => {}, disk);
    let best: Pick<BestCheckpoint, "step" | "loss"> | undefined = await readBest(DIRECTORY, disk);
    const { model: shapes } = stateShapes(options.model.parameters, options);
    for (const request of requests.slice(from?.step ?? 0)) {
      const { step } = request;
      const ending = engine.step(request), saves = savesAfter(step, configuration);
      if (saves) await engine.drain();
      // Without flushes a step may end together with later ones; if it fails, they fail, too.
      if (saves || engine.ahead === 0) await ending;
      else ending.catch(() => {});
      if (!saves) continue;
      const state = heldValues(await engine.save(), shapes);
      if (step <= last && step > (best?.step ?? 0)) best = { step, loss: 1 / step };
      await writer.begin({ step, state, config: to.config, best });
      await writer.ended();
      promised.step = Math.max(promised.step, step);
      promised.best = Math.max(promised.best, best?.step ?? 0);
    }
    return hashWeights((await engine.save()).weights);
  } finally {
    await engine.close();
  }
}

function verify(
  found: Checkpoint | undefined,
  promised: Promised,
  { hashes }: Recalled,
): void {
  const step = found?.step ?? 0, expected = hashes[step];
  const must = `the checkpoint of step ${promised.step} must be there, reported as complete`;
  assertInput(step >= promised.step, "continue", must, `that of step ${step}`, Error);
  const hash = found ? hashWeights(found.state.weights) : hashes[0];
  const same = `the checkpoint of step ${step} must have the weights ${expected}`;
  assertInput(hash === expected, "continue", same, `${hash}: a torn one was accepted`, Error);
}

/** Checks that the checkpoint in `best.json` exists, regardless of which others were kept. */
async function verifyBest(
  disk: SimulatedDisk,
  { best }: Promised,
  prepared: Recalled,
): Promise<void> {
  const { step } = await readBest(DIRECTORY, disk) ?? { step: 0 };
  // Where the power failed while it was replaced, what made way for it is there.
  const folders = stepFolders(await folderEntries(DIRECTORY, disk));
  const folder = folders.find((one) => one.step === step && one.kind !== "unfinished");
  const isThere = step >= best && (step === 0 || folder !== undefined);
  const must = `the best checkpoint must be there, that of step ${best}`;
  assertInput(isThere, "continue", must, folder ? `that of step ${step}` : "none", Error);
  if (!folder) return;
  const found = await readCheckpoint(`${DIRECTORY}/${folder.name}`, undefined, disk);
  verify(found, { step, best }, prepared);
}

/** Returns true if the disk has failed, not the program. */
function isDiskFault(error: unknown, disk: SimulatedDisk): boolean {
  const { cause } = error as { cause?: { code?: string } };
  return disk.isDown || cause?.code === "ENOSPC";
}
