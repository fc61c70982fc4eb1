/** Programs with actors of packages, by name: each prints the end of its actors. */

import { createSystem } from "../../../actors/transports/system.ts";
import { packageActor } from "../../../actors/sandbox/host.ts";
import { failureOf } from "../runtime/harness.ts";
import type { Hostile } from "./fixtures/hostile.ts";

const FROM = import.meta.resolve("./fixtures/hostile.ts");

const print = (text: string) => Deno.stdout.write(new TextEncoder().encode(text));

/** A program without all permissions. */
async function limited(): Promise<void> {
  await using system = createSystem();
  const refusals = [{ net: true }, { env: ["HOME"] }, { run: ["/bin/true"] }].map((permissions) => {
    try {
      packageActor({ from: FROM, permissions });
      return "granted";
    } catch (error) {
      return String(error);
    }
  });
  const spec = packageActor<undefined, Hostile>({ from: FROM });
  const hostile = system.spawn(spec, undefined, { id: "hostile" });
  const said = await system.ask(hostile, { type: "Attack", name: "work" });
  await print(JSON.stringify({ refusals, said }));
}

/** A program to be killed, while its actor loops: prints the number of that one's process. */
async function orphan(temporary: string): Promise<void> {
  Deno.env.set("TMPDIR", temporary);
  const system = createSystem();
  const spec = packageActor<undefined, Hostile>({ from: FROM });
  const hostile = system.spawn(spec, undefined, { id: "hos\x1btile" });
  await system.ask(hostile, { type: "Attack", name: "print" });
  const pid = await system.ask(hostile, { type: "Attack", name: "tell its number" });
  system.send(hostile, { type: "Attack", name: "loop" });
  await print(pid);
}

/** A program that asks for a worker for the actor of a package. */
async function worker(from: string): Promise<void> {
  await using system = createSystem();
  const spec = packageActor<undefined, Hostile>({ from, isolate: "worker", stepLimitMs: 1000 });
  const hostile = system.spawn(spec, undefined, { id: "hostile" });
  const attack = (name: string) => system.ask(hostile, { type: "Attack", name });
  const refused = await attack("work").then(() => undefined, (error: Error) => error.message);
  if (refused !== undefined) {
    system.failed.catch(() => {});
    return void await print(JSON.stringify({ refused }));
  }
  const isWorker = await attack("tell its number") === String(Deno.pid);
  const read = await attack("read a file"), npm = await attack("import a cached package");
  system.send(hostile, { type: "Attack", name: "wait for ever" });
  const { error } = await failureOf(system, hostile);
  await print(JSON.stringify({ isWorker, read, npm, ended: error.message }));
}

const [name, from] = Deno.args,
  PROGRAMS = { limited, orphan: () => orphan(from!), worker: () => worker(from!) };
await PROGRAMS[name as keyof typeof PROGRAMS]();
