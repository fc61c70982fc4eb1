/**
 * A program to be killed: it says where its two processes are, one of them in an endless loop.
 *
 * @module
 */

import { createSystem } from "../../../actors/runtime/mod.ts";
import { ROGUE } from "./process_players.ts";

const system = createSystem();
const rogues = ["idle", "busy"].map((id) =>
  system.spawn(ROGUE, undefined, { id, isolate: "process" })
);
const pids = await Promise.all(rogues.map((ref) => system.ask(ref, { type: "Pid" })));
system.send(rogues[1]!, { type: "Loop" });
await Deno.stdout.write(new TextEncoder().encode(JSON.stringify(pids)));
