/**
 * The actors that train, and the actor runtime beneath them.
 *
 * @module
 */

export * from "./all_reduce/mod.ts";
export * from "./checkpoint.ts";
export * from "./console/command.ts";
export * from "./console/data_files.ts";
export * from "./console/escape.ts";
export * from "./console/explore_command.ts";
export * from "./console/flags.ts";
export * from "./console/generate_command.ts";
export * from "./console/inherited.ts";
export * from "./console/journal_command.ts";
export * from "./console/replay_command.ts";
export * from "./console/report.ts";
export * from "./console/task.ts";
export * from "./console/train_flags.ts";
export * from "./console/train_request.ts";
export type { Disk, DiskFile } from "./disk.ts";
export * from "./engine.ts";
export type { WorkerFault } from "./faults.ts";
export * from "./layout.ts";
export * from "./link.ts";
export * from "./loss_scale.ts";
export * from "./memory_plan.ts";
export * from "./plan.ts";
export * from "./protocol.ts";
export * from "./recovery.ts";
export * from "./rehearsal/mod.ts";
export * from "./runtime/mod.ts";
export * from "./train.ts";
export * from "./train_event.ts";
export * from "./train_options.ts";
export * from "./trainable.ts";
export * from "./weights.ts";
