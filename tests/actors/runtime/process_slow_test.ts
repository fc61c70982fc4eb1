/** Actors in processes: every kind of end is noticed. */

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import type { System } from "../../../actors/runtime/mod.ts";
import { inFolder } from "../../in_folder.ts";
import { childProcesses, isAlive } from "../child_processes.ts";
import { runContract } from "./contract.ts";
import { ARRIVALS, CROSSINGS, ISOLATE_ENDS, neighbours } from "./contract/isolates.ts";
import { MESSAGES } from "./contract/messages.ts";
import { FAMILIES, STOPS } from "./contract/stops.ts";
import { register } from "./contract/suite.ts";
import { downOf, failureOf, withSystem } from "./harness.ts";
import { type AnyMessage, type AnyRef, kindOf, RECORDER, ROGUE } from "./players.ts";
import { Running } from "../../console/running.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { TCP_TRANSPORT } from "./tcp_transport.ts";

const isolate = "process";

/** A transport that is none of the built-in ones, all of whose frames go by the root. */
const TCP = { isolate: "tcp", transport: TCP_TRANSPORT };

// Suites that depend on the transport; workers run all the others.
runContract({ isolate }, [MESSAGES, FAMILIES, STOPS, ISOLATE_ENDS, CROSSINGS]);
runContract(TCP, [CROSSINGS]);
register({ isolate }, ARRIVALS);
register(TCP, neighbours("process", "tcp"));

async function rogueOf(system: System, id = "rogue") {
  const memory = id === "full" ? { memoryLimitMb: 32 } : {};
  const ref = system.spawn(ROGUE, undefined, { id, isolate, ...memory });
  return { ref, pid: await system.ask(ref, { type: "Pid" }) };
}

Deno.test("process: an end is noticed with its signal or code, and as one for lack of memory", () =>
  withSystem({}, async (system) => {
    const ends: [string, AnyMessage | "kill", RegExp][] = [
      ["killed", "kill", /ended: killed by SIGKILL$/],
      ["gone", { type: "Exit", code: 0 }, /^the process of "gone" has ended: exited with code 0$/],
      ["failed", { type: "Exit", code: 3 }, /ended: exited with code 3$/],
      ["full", { type: "Fill" }, /ended: killed by SIG(TRAP|ABRT), as when out of memory$/],
    ];
    await Promise.all(ends.map(async ([id, message, text]) => {
      const { ref, pid } = await rogueOf(system, id), failure = failureOf(system, ref);
      assert.notEqual(pid, Deno.pid);
      if (message === "kill") Deno.kill(pid, "SIGKILL");
      else system.send(ref, message);
      const { actor, kind, error } = await failure;
      assert.deepEqual({ actor, kind }, { actor: id, kind: "exit" });
      assert.match(error.message, text);
    }));
  }));

Deno.test("process: kill -9 in the middle of large messages harms no other", () =>
  withSystem({}, async (system) => {
    const first = await rogueOf(system), second = await rogueOf(system, "second");
    const spawn = (isolate: "local" | "process") =>
      system.spawn(RECORDER, undefined, { id: isolate, isolate });
    const here = spawn("local"), there = spawn("process"), bytes = 4_000_000;
    await system.ask(first.ref, { type: "Pour", to: here, bytes });
    await system.ask(second.ref, { type: "Pour", to: there, bytes });
    await system.ask(there, { type: "Wait", count: 1 });
    const downs = Promise.all([first, second].map(({ ref }) => failureOf(system, ref)));
    // Also in the middle of incoming data.
    for (const { ref } of [first, second]) {
      const tensor = new Float32Array(1_000_000);
      system.send(ref, { type: "Weigh", tensor }, { transfer: [tensor.buffer] });
    }
    for (const { pid } of [first, second]) Deno.kill(pid, "SIGKILL");
    for (const { error } of await downs) assert.match(error.message, /killed by SIGKILL$/);
    for (const to of [here, there]) {
      assert.ok((await system.ask(to, { type: "Read" })).every((what: unknown) => what === bytes));
    }
  }));

for (const name of ["orphan", "starting"]) {
  Deno.test(`process: none outlives a program that is killed (${name}), and no file is left`, () =>
    inFolder(async (folder) => {
      const path = fileURLToPath(new URL("./program.ts", import.meta.url));
      const program = new Running(["run", "-A", path, name], false, { TMPDIR: folder });
      await program.printed("stdout", /./);
      const pids = childProcesses(program.pid);
      assert.ok(pids.length > 0 && pids.every(isAlive));
      program.kill();
      await program.end(HANG_LIMIT_MS);
      assert.ok(!pids.some(isAlive));
      assert.deepEqual([...Deno.readDirSync(folder)], []);
    }));
}

Deno.test("process: a tensor leaves before the next step of its sender, which may be long", () =>
  withSystem({}, async (system) => {
    const { ref } = await rogueOf(system);
    const to = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    // The test does not wait for a delayed receiver, so not every try must succeed.
    for (let count = 1; count <= 10; count++) {
      system.send(ref, { type: "Ship", to, bytes: 2_000_000 });
      const end = system.ask(ref, { type: "Busy", ms: 100 });
      await system.ask(to, { type: "Wait", count });
      const arrived = performance.timeOrigin + performance.now();
      if (arrived < await end) return;
    }
    assert.fail("none of ten tensors left before the next step");
  }));

Deno.test("process: an actor in a process can have children in any place", () =>
  withSystem({}, async (system) => {
    for (const place of ["local", "worker"] as const) {
      const { ref, pid } = await rogueOf(system);
      const [inner, notes]: AnyRef[] = await system.ask(ref, { type: "Spawn", isolate: place });
      assert.equal(inner!.isolate === ref.isolate, place === "local");
      assert.equal(await system.ask(inner!, { type: "Double", n: 2 }), 4);
      system.send(notes!, { type: "Watch", ref });
      await system.ask(notes!, { type: "Read" });
      const downs = Promise.all([ref, inner!, notes!].map((one) => downOf(system, one)));
      Deno.kill(pid, "SIGKILL");
      const [own, ...others] = (await downs).map(({ reason }) => reason);
      assert.ok(own !== "stopped");
      // Those in the same process die with it; the others lose their parent, and stop.
      const reason = place === "local" ? "exit" : "stopped";
      assert.deepEqual(others.map(kindOf), [reason, reason]);
    }
  }));
