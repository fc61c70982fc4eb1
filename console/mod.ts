/**
 * The `troupe` command: its flags, what it prints, and what it exits with.
 *
 * @module
 */

export * from "./command.ts";
export * from "./commands/explore.ts";
export * from "./commands/generate.ts";
export * from "./commands/journal.ts";
export * from "./commands/replay.ts";
export * from "./commands/schedule.ts";
export * from "./commands/train.ts";
export * from "./escape.ts";
export * from "./flags/flags.ts";
export * from "./print.ts";
export * from "./train/data_files.ts";
export * from "./train/inherited.ts";
export * from "./train/report.ts";
export * from "./train/task.ts";
export * from "./train/train_flags.ts";
export * from "./train/train_request.ts";
export * from "./troupe.ts";
