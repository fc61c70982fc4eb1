/** A run whose options are checked and whose model is compiled. */

import type { LossScale } from "../gradients/commit.ts";
import type { MpiRunOptions, RuntimeName, TrainOptions } from "../options/train_options.ts";
import type { WorkerFault } from "../pipeline/worker_state.ts";
import type { PlaceName } from "../runtime/mod.ts";
import type { EngineOptions } from "./engine.ts";
import type { RateOf } from "./events.ts";
import type { Plan } from "./plan.ts";

import type { OpenJournal } from "./run_journal.ts";
import type { SnapshotPlace } from "../options/option.ts";

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
