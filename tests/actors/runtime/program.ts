/**
 * Programs that tests start: `orphan` says where its two processes are, one of them in an endless
 * loop, and waits to be killed; `starting` waits for that as soon as a process is on its way;
 * `permissions` prints its permissions and those of a process;
 * `telemetry` has its steps exported, and ends with its input.
 *
 * @module
 */

import { createSystem } from "../../../actors/transports/system.ts";
import { ROGUE, SERVER } from "./players.ts";
import { PROBE, states } from "./probe.ts";

const print = (text: string) => void Deno.stdout.writeSync(new TextEncoder().encode(text));

const PROGRAMS: Readonly<Record<string, () => Promise<void>>> = {
  async orphan() {
    const system = createSystem();
    const rogues = ["idle", "busy"].map((id) =>
      system.spawn(ROGUE, undefined, { id, isolate: "process" })
    );
    const pids = await Promise.all(rogues.map((ref) => system.ask(ref, { type: "Pid" })));
    system.send(rogues[1]!, { type: "Loop" });
    print(JSON.stringify(pids));
  },

  async starting() {
    createSystem().spawn(ROGUE, undefined, { id: "late", isolate: "process" });
    print(" ");
    await new Promise(() => {});
  },

  async permissions() {
    await using system = createSystem();
    const probe = system.spawn(PROBE, undefined, { id: "probe", isolate: "process" });
    print(JSON.stringify([states(), await system.ask(probe, { type: "States" })]));
  },

  async telemetry() {
    const system = createSystem();
    const refs = (["local", "worker"] as const).map((isolate) =>
      system.spawn(SERVER, undefined, { id: `server-${isolate}`, isolate })
    );
    for (const ref of refs) await system.ask(ref, { type: "Double", n: 1 });
    print("handled\n");
    // Metrics are collected now and then, while there are actors.
    for await (const _ of Deno.stdin.readable);
    const down = new Promise((resolve) => system.watch(refs[0]!, resolve));
    system.send(refs[0]!, { type: "Throw" });
    await down;
    await system.stop();
  },
};

if (import.meta.main) await PROGRAMS[Deno.args[0]!]!();
