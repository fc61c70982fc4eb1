/** A program whose steps are exported. It ends when it is told to, by the end of its input. */

import { createSystem } from "../../../actors/runtime/mod.ts";
import { SERVER } from "./players.ts";

const system = createSystem();
const spawn = (isolate: "local" | "worker") =>
  system.spawn(SERVER, undefined, { id: `server-${isolate}`, isolate });
const refs = [spawn("local"), spawn("worker")];
for (const ref of refs) await system.ask(ref, { type: "Double", n: 1 });
await Deno.stdout.write(new TextEncoder().encode("handled\n"));
// Metrics are collected now and then, while there are actors.
for await (const _ of Deno.stdin.readable);
const down = new Promise((resolve) => system.watch(refs[0]!, resolve));
system.send(refs[0]!, { type: "Throw" });
await down;
await system.stop();
