/**
 * The actors that train, and the actor runtime beneath them.
 *
 * @module
 */

export * from "./commit/all_reduce/mod.ts";
export * from "./checkpoints/mod.ts";
export type { SyncStrategy } from "./commit/eager_stages.ts";
export * from "./commit/gradient_norm.ts";
export * from "./commit/mean_loss.ts";
export { areFinite } from "./commit/non_finite.ts";
export * from "./foresight/mod.ts";
export type { StageState } from "../kernels/mod.ts";
export * from "./run/engines/engine.ts";
export { trainedTies, withoutAliases } from "./run/engines/tied_parameters.ts";
export type { WorkerFault } from "./pipeline/worker/faults.ts";
export * from "./pipeline/layout.ts";
export * from "./pipeline/links/emulated_link.ts";
export * from "./commit/loss_scale.ts";
export * from "./run/memory/memory_plan.ts";
export type { ActorBytes, RunMemory } from "./run/memory/run_memory.ts";
export * from "./run/plan.ts";
export type { CompileOptions } from "./run/compile_run.ts";
export type { PolicyData } from "./pipeline/policy_data.ts";
export * from "./pipeline/protocol.ts";
export type { InFlightOptions } from "./pipeline/mailbox_bound.ts";
export type { CompiledStages, CopyInit } from "./pipeline/stage_copies.ts";
export type { CompiledRun } from "./run/compile_run.ts";
export type { SupervisorInit } from "./pipeline/supervisor/supervisor_init.ts";
export type { WorkerInit } from "./pipeline/worker/worker_init.ts";
export type { ReduceOptions, TieEnd } from "./commit/copy_sync.ts";
export * from "./pipeline/step.ts";
export { sumMemory } from "./pipeline/sum_memory.ts";
export * from "./pipeline/step_plan.ts";
export * from "./pipeline/update_policy.ts";
export * from "./run/recovery/recovery.ts";
export type { RetryOptions } from "./run/recovery/retries.ts";
export type { SnapshotPlace, Snapshots } from "./run/recovery/snapshots.ts";
export * from "./parts/mod.ts";
export * from "./registry/mod.ts";
export * from "./rehearsal/mod.ts";
export * from "./runtime/mod.ts";
export * from "./sandbox/mod.ts";
export type { JournaledRun, OpenJournal, RunJournal } from "./run/run_journal.ts";
export type { Batches, Data, DataSource } from "./run/data/data.ts";
export type { Metrics } from "./run/metrics/metrics.ts";
export type { Best } from "./run/progress/best.ts";
export type { RateOf } from "./run/progress/rate_of.ts";
export { tensorboard, type Tracker } from "./run/metrics/tensorboard.ts";
export type { MpiRunOptions } from "./run/mpi_run.ts";
export * from "./run/timeline/mod.ts";
export * from "./run/train.ts";
export * from "./run/train_event.ts";
export type { CoreShare } from "./run/options/core_share.ts";
export * from "./run/options/prepare_run.ts";
export * from "./run/options/train_options.ts";
export * from "./run/options/trainable.ts";
