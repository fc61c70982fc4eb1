import type { LossScale } from "../gradients/commit.ts";
import type { MpiRunOptions, TrainOptions } from "../options/train_options.ts";
import type { PlaceName } from "../runtime/mod.ts";
import type { EngineOptions } from "./engine.ts";
import type { RateOf } from "./events.ts";
import type { Plan } from "./plan.ts";
import type { OpenJournal } from "./run_journal.ts";

/** A run with checked options, defaults and a compiled model. */
export interface PreparedRun extends
  EngineOptions,
  Pick<
    TrainOptions,
    | ("steps" | "data" | "dropLast")
    | ("evaluation" | "resume" | "signal")
    // The configuration of checkpoints is encoded.
    | ("checkpoint" | "snapshots")
  >,
  Required<Pick<TrainOptions, "announce" | "faults" | "retries" | "runtime">> {
  /** Micro-batches of one step, all data-parallel replicas together. */
  readonly microBatches: number;
  /** Factor of the loss; undefined if a step that overflows ends the run. */
  readonly lossScale: LossScale | undefined;
  /** Where the journal goes. */
  readonly journal: OpenJournal | undefined;
  /** How each worker is kept apart from the others. */
  readonly isolation: PlaceName;
  /** The rank of each worker, where they live on ranks of MPI, and how those are reached. */
  readonly mpi: (MpiRunOptions & { readonly ranks: readonly number[] }) | undefined;
  /** Whether the last event has the weights also where no checkpoint holds them. */
  readonly returnsWeights: boolean;
  /** The learning rate of each step. */
  readonly rate: RateOf;
  /** What is about to run. */
  readonly plan: Plan;
}
