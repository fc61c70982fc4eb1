/**
 * A run that can begin: its options checked, their defaults filled in, its model compiled.
 *
 * @module
 */

import type { DeviceName } from "../../../kernels/mod.ts";
import type { Schedule } from "../../../schedules/mod.ts";
import { checkWritable, encodeConfig } from "../../checkpoints/check_writable.ts";
import { lockFolder } from "../../checkpoints/checkpoint_lock.ts";
import { checkClaim, type Claim } from "../../checkpoints/claim_folder.ts";
import type { LossScale } from "../../commit/loss_scale.ts";
import type { WorkerFault } from "../../pipeline/worker/faults.ts";
import type { PlaceName } from "../../runtime/mod.ts";
import { tidyRendezvousFolders } from "../../runtime/transports/process/rendezvous_folder.ts";
import { type CompiledRun, compileRun, planRun } from "../compile_run.ts";
import type { EngineOptions } from "../engines/engine.ts";
import { assertDevicesHold } from "../memory/device_memory.ts";
import { assertMemory } from "../memory/memory_limit.ts";
import { skipTrafficNote } from "../memory/skip_traffic.ts";
import { planRunMemory } from "../memory/run_memory.ts";
import { type MpiRunOptions, rankMap } from "../mpi_run.ts";
import { describePlan, type Plan } from "../plan.ts";
import { type OpenJournal, openRunJournal } from "../run_journal.ts";
import { checkOptions } from "./check_options.ts";
import { checkReduce } from "./check_reduce.ts";
import { chooseSchedule } from "./choose_schedule.ts";
import { shareCores } from "./core_share.ts";
import { firstState, SEED } from "./first_state.ts";
import { type RateOf, rateOf } from "../progress/rate_of.ts";
import { adapterNames, assertRanksHold, isolationFor, runDevices } from "./run_devices.ts";
import type { SnapshotPlace } from "../recovery/snapshots.ts";
import { checkSizes } from "./sizes.ts";
import type { RuntimeName, TrainOptions } from "./train_options.ts";
import { transportTo } from "../place.ts";
import { assertRecomputable, assertServable } from "./trainable.ts";

/** Everything that a run is made from: options checked, defaults filled in. */
export interface PreparedRun extends EngineOptions {
  /** Optimizer steps of the whole run. */
  readonly steps: number;
  /** Micro-batches of one step, all data-parallel replicas together. */
  readonly microBatches: number;
  /** How the loss is scaled; undefined where a step that overflows ends the run. */
  readonly lossScaling: LossScale | undefined;
  /** Where checkpoints go; their configuration is as they will keep it. */
  readonly checkpoint: TrainOptions["checkpoint"];
  /** Where the journal goes. */
  readonly journal: OpenJournal | undefined;
  /** How each worker is kept apart from the others. */
  readonly isolation: PlaceName;
  /** The rank of each worker, where they live on ranks of MPI, and how those are reached. */
  readonly mpi: (MpiRunOptions & { readonly ranks: readonly number[] }) | undefined;
  /** What workers are asked to suffer. */
  readonly faults: readonly WorkerFault[];
  /** How often each worker may fail within ten minutes before the run ends. */
  readonly retries: number;
  /** Where snapshots lie, where that was said. */
  readonly snapshots: SnapshotPlace | undefined;
  /** Whether the last event has the weights also where no checkpoint holds them. */
  readonly returnsWeights: boolean;
  /** Told in words what the user should know. */
  readonly announce: (line: string) => void;
  /** Where actors run. */
  readonly runtime: RuntimeName;
  /** The learning rate of each step. */
  readonly rate: RateOf;
  /** What is about to run. */
  readonly plan: Plan;
}

/** Failures of a worker that a run outlives unless asked otherwise. */
const RETRIES = 3;

/** What nobody works at for so long has stalled, unless asked otherwise. */
const STALL_MS = 60_000;

/** Buckets of a chunk unless asked otherwise: AxoNN found 2 to 4 best (section V-C). */
const COARSENING = 4;

/** Options, and in place of those that were not given what they then are. */
type FilledOptions = ReturnType<typeof withDefaults>;

function withDefaults(options: TrainOptions) {
  const { precision = "fp32", announce = () => {} } = options;
  return {
    ...options,
    precision,
    announce,
    microBatches: options.microBatches ?? 4,
    workers: options.workers ?? 1,
    replicas: options.replicas ?? 1,
    runtime: options.runtime ?? "workers",
    schedule: options.schedule ?? "1f1b",
    sync: options.sync ?? "end",
    reduce: options.reduce ?? "deterministic",
    coarsening: options.coarsening ?? COARSENING,
    clip: options.clip || undefined,
    rate: rateOf(options),
    lossScale: options.lossScale ?? (precision === "fp16" ? "dynamic" : undefined),
    faults: options.faults ?? [],
    stallMs: options.stallMs ?? STALL_MS,
    retries: options.retries ?? RETRIES,
    seed: options.seed ?? SEED,
  } as const;
}

/**
 * Checks the options of a run and fills in its defaults; fetches the device where needed.
 *
 * @throws {RangeError} {@linkcode TypeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function prepareRun(options: TrainOptions): Promise<PreparedRun> {
  checkOptions(options);
  const filled = withDefaults(options), { runtime, replicas, announce } = filled;
  checkReduce(filled);
  checkSizes(filled);
  const chosen = chooseSchedule(filled), { schedule } = chosen;
  const servable = compileServable(filled, schedule), workers = replicas * schedule.workers;
  const devices = await runDevices(options, runtime, workers), [device] = devices;
  const isolation = runtime === "mpi"
    ? runtime
    : isolationFor(runtime, filled.isolation, device.name);
  const compiled = planRun(servable, schedule, device.name), { predictions } = options.model;
  const { model, stage, halves } = compiled;
  const note = runtime === "serial" ? undefined : skipTrafficNote(compiled, schedule);
  if (note) announce(note);
  // Before the first weights are drawn: they may be too many.
  const run = { options: filled, schedule, compiled, devices, runtime, replicas };
  assertMemory(options.memoryLimitBytes, run);
  assertDevicesHold(run);
  // Ranks that share no folder are sent what rank 0 has read.
  const state = await firstState(model, options, runtime !== "mpi" || !options.mpi?.gather);
  const { checkpoint, journal } = await openOutputs({ ...filled, isolation });
  const isRanked = runtime === "mpi" && !options.system;
  const mpi = isRanked ? rankedRun(options, workers, device.name) : undefined;
  return {
    ...filled,
    ...chosen,
    mpi,
    microBatches: replicas * schedule.microBatches,
    predictionsOf: typeof predictions === "number" ? () => predictions : predictions,
    halves,
    model,
    state,
    plan: describePlan(compiled, schedule, {
      ...{ runtime, replicas },
      device: device.name,
      adapter: adapterNames(devices),
      share: shareCores(options, runtime, workers, device.name),
      run: planRunMemory({ ...filled, ...chosen, compiled, devices, isolation }),
    }),
    devices,
    stage,
    lossScaling: filled.lossScale,
    isolation,
    checkpoint,
    journal,
    isSharded: checkpoint !== undefined && mpi !== undefined && !mpi.gather,
    snapshots: options.snapshots,
    returnsWeights: options.returnWeights ?? true,
    isTraced: options.trace ?? false,
  };
}

/** The ranks of a run. With a journal, messages bring all weights to rank 0, so that they are told. */
function rankedRun(
  { mpi = {}, journal }: TrainOptions,
  workers: number,
  device: DeviceName,
): PreparedRun["mpi"] {
  const ranks = rankMap(mpi, workers);
  assertRanksHold(ranks, device);
  return { ...mpi, gather: mpi.gather || journal !== undefined, ranks };
}

/** Compiles the model for its schedule, if these options can serve both. */
function compileServable(options: FilledOptions, schedule: Schedule): CompiledRun {
  const { runtime } = options;
  if (options.journal && runtime === "serial") {
    throw new RangeError(
      "Cannot write a journal: the runtime must have actors, workers or local, received serial",
    );
  }
  refuseOwnActors(options);
  assertRecomputable(schedule, options);
  const compiled = compileRun(options, schedule);
  assertServable(schedule, { ...options, ties: compiled.model.ties.length });
  return compiled;
}

/** Refuses a supervisor or workers of the user's where there are none, or none that are replayed. */
function refuseOwnActors({ runtime, journal, supervisor, worker }: FilledOptions): void {
  if (runtime === "serial" && (supervisor ?? worker)) {
    throw new RangeError(
      "Cannot train with a supervisor or workers of your own: the runtime must have actors, received serial",
    );
  }
  if (!journal || ![supervisor, worker].some((spec) => spec?.argument)) return;
  throw new RangeError(
    "Cannot write a journal: supervisor and workers must be Troupe's own, or exports of a module, as those of a package are not replayed, received a package",
  );
}

/** Makes sure that what the run will leave can be written, and that its processes can start. */
async function openOutputs(
  { runtime, isolation, announce, ...options }: FilledOptions & { readonly isolation: PlaceName },
): Promise<Pick<PreparedRun, "checkpoint" | "journal">> {
  const checkpoint = options.checkpoint &&
    { ...options.checkpoint, config: encodeConfig({ config: {}, ...options.checkpoint }.config) };
  const { resume, weights } = options;
  if (checkpoint) await checkDirectory({ ...checkpoint, resume, weights });
  if (runtime === "workers") transportTo(isolation, options)?.check?.();
  tidyRendezvousFolders();
  const journal = options.journal && await openRunJournal(options.journal, announce);
  return { checkpoint, journal };
}

/** Checks where checkpoints go; again when the run has the folder, but a journal is begun before. */
async function checkDirectory({ directory, ...claim }: Claim & { readonly directory: string }) {
  await checkWritable(directory);
  await checkClaim(directory, claim).catch((error) => {
    using _folder = lockFolder(directory); // of a run that goes on, that is what is in the way
    throw error;
  });
}
