/**
 * The `troupe` command: `deno run -A jsr:@troupe/troupe/cli train`, `generate` and others.
 *
 * @module
 */

import { runCommand } from "./console/command.ts";
import { troupe } from "./console/mod.ts";

export { type CommandContext, runCommand } from "./console/command.ts";
export { troupe } from "./console/mod.ts";

if (import.meta.main) await runCommand((context) => troupe(Deno.args, context));
export type { SoFar } from "./console/so_far.ts";
export type { ResultSoFar } from "./console/so_far.ts";
