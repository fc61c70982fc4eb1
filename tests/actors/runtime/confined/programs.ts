/** Programs that have confined actors, by their names: each prints what became of these. */

import { type Ask, createSystem, type Down, type PackageSpec } from "../../../../actors/mod.ts";

type Hostile = { type: "Attack"; name: string } & Ask<string>;

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
  const down = new Promise<Down>((resolve) => system.watch(hostile, resolve));
  const said = await system.ask(hostile, { type: "Attack", name: "work" });
  system.send(hostile, { type: "Attack", name: "fill buffers" });
  const { reason } = await down;
  const ended = reason === "stopped" ? reason : reason.error.message;
  await print(JSON.stringify({ refusals, said, ended }));
}

/** A program to be killed, while its actor loops: prints the number of that one's process. */
async function orphan(): Promise<void> {
  const system = createSystem();
  const hostile = system.spawn(HOSTILE, undefined, { id: "hos\x1btile" });
  await system.ask(hostile, { type: "Attack", name: "print" });
  const pid = await system.ask(hostile, { type: "Attack", name: "tell its number" });
  system.send(hostile, { type: "Attack", name: "loop" });
  await print(pid);
}

type Sayer = { type: "Say"; what: string } & Ask<string>;

/** A program that asks for a worker for the actor of a package. */
async function worker(from: string): Promise<void> {
  await using system = createSystem();
  const spec: PackageSpec<undefined, Sayer> = { from }, events: string[] = [];
  using _ = system.subscribe((event) =>
    events.push(event.type === "moved" ? `${event.actor} to ${event.to}: ${event.why}` : event.type)
  );
  const options = { id: "sayer", isolate: "worker", stepLimitMs: 1000 } as const;
  const sayer = system.spawn(spec, undefined, options);
  const down = new Promise<Down>((resolve) => system.watch(sayer, resolve));
  const say = (what: string) => system.ask(sayer, { type: "Say", what });
  const isWorker = await say("pid") === String(Deno.pid);
  const read = await say("read"), npm = await say("npm");
  system.send(sayer, { type: "Say", what: "wait" });
  const { reason } = await down;
  const ended = reason === "stopped" ? reason : reason.error.message;
  await print(JSON.stringify({ isWorker, read, npm, ended, events }));
}

const [name, from] = Deno.args;
const PROGRAMS = { limited, orphan, worker: () => worker(from!) };
await PROGRAMS[name as keyof typeof PROGRAMS]();
