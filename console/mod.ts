/**
 * The `troupe` command: its flags, what it prints, and what it exits with.
 *
 * @module
 */

export * from "./command.ts";
export * from "./data_files.ts";
export * from "./escape.ts";
export * from "./explore_command.ts";
export * from "./flags.ts";
export * from "./generate_command.ts";
export * from "./inherited.ts";
export * from "./journal_command.ts";
export * from "./replay_command.ts";
export * from "./report.ts";
export * from "./task.ts";
export * from "./train_flags.ts";
export * from "./train_request.ts";
