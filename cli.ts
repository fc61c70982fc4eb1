/**
 * The `troupe` command: `deno task troupe train`, `generate` and the like; and what it is made of,
 * for a command of one's own.
 *
 * @module
 */

import { runCommand, troupe } from "./console/mod.ts";

export * from "./console/mod.ts";

if (import.meta.main) await runCommand((context) => troupe(Deno.args, context));
