/** Programs that have confined actors, by their names: each prints what became of these. */

import { createSystem, type PackageSpec } from "../../../../actors/mod.ts";
import { failureOf } from "../harness.ts";
import type { Hostile } from "./fixtures/hostile.ts";

const HOSTILE: PackageSpec<undefined, Hostile> = {
  from: import.meta.resolve("./fixtures/hostile.ts"),
};

const print = (text: string) => Deno.stdout.write(new TextEncoder().encode(text));

/** A program without all permissions. */
async function limited(): Promise<void> {
  await using system = createSystem();
  const refusals = [{ net: true }, { env: ["HOME"] }, { run: ["/bin/true"] }].map((permissions) => {
    try {
      system.spawn(HOSTILE, undefined, { id: "greedy", permissions });
      return "spawned";
    } catch (error) {
      return String(error);
    }
  });
  const hostile = system.spawn(HOSTILE, undefined, { id: "hostile", memoryLimitMb: 160 });
  const said = await system.ask(hostile, { type: "Attack", name: "work" });
  system.send(hostile, { type: "Attack", name: "hold more than a little" });
  const { error } = await failureOf(system, hostile);
  await print(JSON.stringify({ refusals, said, ended: error.message }));
}

/** A program to be killed, while its actor loops: prints the number of that one's process. */
async function orphan(temporary: string): Promise<void> {
  Deno.env.set("TMPDIR", temporary);
  const system = createSystem();
  const hostile = system.spawn(HOSTILE, undefined, { id: "hos\x1btile" });
  await system.ask(hostile, { type: "Attack", name: "print" });
  const pid = await system.ask(hostile, { type: "Attack", name: "tell its number" });
  system.send(hostile, { type: "Attack", name: "loop" });
  await print(pid);
}

/** A program that asks for a worker for the actor of a package. */
async function worker(from: string): Promise<void> {
  await using system = createSystem();
  const events: string[] = [];
  using _ = system.subscribe((event) => events.push("why" in event ? event.why : event.type));
  const options = { id: "hostile", isolate: "worker", stepLimitMs: 1000 } as const;
  const hostile = system.spawn<undefined, Hostile>({ from }, undefined, options);
  const attack = (name: string) => system.ask(hostile, { type: "Attack", name });
  const isWorker = await attack("tell its number") === String(Deno.pid);
  const read = await attack("read a file"), npm = await attack("import a cached package");
  const said = { isWorker, read, npm, events };
  if (!isWorker) return void await print(JSON.stringify(said));
  system.send(hostile, { type: "Attack", name: "wait for ever" });
  const { error } = await failureOf(system, hostile);
  await print(JSON.stringify({ ...said, ended: error.message }));
}

const [name, from] = Deno.args,
  PROGRAMS = { limited, orphan: () => orphan(from!), worker: () => worker(from!) };
await PROGRAMS[name as keyof typeof PROGRAMS]();
