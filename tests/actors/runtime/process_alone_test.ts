import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  type ActorRef,
  type ActorSpec,
  createSystem,
  type System,
} from "../../../actors/runtime/mod.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { checkProcesses } from "../../../actors/runtime/transports/process/check.ts";
import { tidyRendezvousFolders } from "../../../actors/runtime/transports/process/rendezvous_folder.ts";
import { downOf, failureOf, until, withSystem } from "./harness.ts";
import { RECORDER, type RecorderMessage, SERVER, type ServerMessage } from "./players.ts";
import { ROGUE, type RogueMessage } from "./process_players.ts";

const isolate = "process";

async function rogueOf(system: System, id = "rogue") {
  const ref = system.spawn(ROGUE, undefined, { id, isolate });
  return { ref, pid: await system.ask<RogueMessage, number>(ref, { type: "Pid" }) };
}

function isAlive(pid: number): boolean {
  try {
    // A process that nobody has waited for yet is dead as well.
    return !/^State:\s+[ZX]/m.test(Deno.readTextFileSync(`/proc/${pid}/status`));
  } catch {
    return false;
  }
}

/** Runs a test where temporary directories are made in one of its own, which must be empty after. */
async function withTemp(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = Deno.makeTempDirSync(), before = Deno.env.get("TMPDIR");
  Deno.env.set("TMPDIR", folder);
  try {
    await test(folder);
    assert.deepEqual([...Deno.readDirSync(folder)], []);
  } finally {
    if (before === undefined) Deno.env.delete("TMPDIR");
    else Deno.env.set("TMPDIR", before);
    Deno.removeSync(folder, { recursive: true });
  }
}

const notesOf = (system: System, ref: ActorRef<RecorderMessage>) =>
  system.ask<RecorderMessage, unknown[]>(ref, { type: "Read" });

Deno.test("process: kill -9 is noticed, with the signal", () =>
  withSystem({}, async (system) => {
    const { ref, pid } = await rogueOf(system);
    assert.notEqual(pid, Deno.pid);
    const recorder = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    system.send(recorder, { type: "Watch", ref });
    await notesOf(system, recorder);
    const failure = failureOf(system, ref);
    Deno.kill(pid, "SIGKILL");
    const { actor, kind, error } = await failure;
    assert.deepEqual({ actor, kind }, { actor: "rogue", kind: "exit" });
    assert.equal(error.message, 'the process of "rogue" has ended: killed by SIGKILL');
    await until(async () => (await notesOf(system, recorder)).length > 0);
    assert.deepEqual(await notesOf(system, recorder), ["rogue exit"]);
    system.send(ref, { type: "Pid" });
    assert.equal(system.deadLetters.at(-1)!.reason, "isolate-gone");
  }));

Deno.test("process: kill -9 in the middle of large messages harms nobody else", () =>
  withSystem({}, async (system) => {
    const { ref, pid } = await rogueOf(system);
    const [here, there] = ["local", "process"].map((isolate) =>
      system.spawn(RECORDER, undefined, { id: isolate, isolate: isolate as "local" | "process" })
    ) as [ActorRef<RecorderMessage>, ActorRef<RecorderMessage>];
    const { ref: second, pid: secondPid } = await rogueOf(system, "second");
    const bytes = 20_000_000;
    await system.ask(ref, { type: "Pour", to: here, bytes });
    await system.ask(second, { type: "Pour", to: there, bytes });
    await until(async () => (await notesOf(system, there)).length > 0);
    const downs = Promise.all([failureOf(system, ref), failureOf(system, second)]);
    // And in the middle of what they get.
    for (const to of [ref, second]) {
      const tensor = new Float32Array(5_000_000);
      system.send(to, { type: "Weigh", tensor }, { transfer: [tensor.buffer] });
    }
    for (const one of [pid, secondPid]) Deno.kill(one, "SIGKILL");
    for (const { error } of await downs) assert.match(error.message, /killed by SIGKILL$/);
    for (const to of [here, there]) {
      assert.ok((await notesOf(system, to)).every((what) => what === bytes));
    }
  }));

Deno.test("process: one that has no memory left dies alone", () =>
  withSystem({}, async (system) => {
    const ref = system.spawn(ROGUE, undefined, { id: "rogue", isolate, memoryLimitMb: 32 });
    const failure = failureOf(system, ref);
    system.send(ref, { type: "Fill" });
    assert.match((await failure).error.message, /killed by SIG(TRAP|ABRT), as when out of memory$/);
  }));

Deno.test("process: Deno.exit is noticed, with the code", () =>
  withSystem({}, async (system) => {
    for (const code of [0, 3]) {
      const { ref } = await rogueOf(system);
      const failure = failureOf(system, ref);
      system.send(ref, { type: "Exit", code });
      const { message } = (await failure).error;
      assert.equal(message, `the process of "rogue" has ended: exited with code ${code}`);
    }
  }));

Deno.test("process: stop() ends an endless loop", async () => {
  const system = createSystem({ stopGraceMs: 100 });
  const { ref, pid } = await rogueOf(system);
  const failure = failureOf(system, ref);
  system.failed.catch(() => {});
  await system.ask(ref, { type: "Loop" });
  await system.stop();
  assert.match((await failure).error.message, /it did not stop within 100 ms$/);
  assert.equal(isAlive(pid), false);
});

Deno.test("process: nothing is left after stop(), and before it nobody else can look in", () =>
  withTemp(async (folder) => {
    const system = createSystem();
    const { pid } = await rogueOf(system);
    const [mine, ...others] = [...Deno.readDirSync(folder)];
    assert.deepEqual(others, []);
    assert.equal(Deno.statSync(join(folder, mine!.name)).mode! & 0o777, 0o700);
    await system.stop();
    assert.equal(isAlive(pid), false);
  }));

Deno.test("process: none outlives a program that is killed, however busy, and no file is left", () =>
  withTemp(async () => {
    const program = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", fileURLToPath(new URL("./orphan_program.ts", import.meta.url))],
      stdout: "piped",
      stderr: "null",
    }).spawn();
    const reader = program.stdout.pipeThrough(new TextDecoderStream()).getReader();
    const pids: number[] = JSON.parse((await reader.read()).value!);
    assert.deepEqual(pids.map(isAlive), [true, true]);
    program.kill("SIGKILL");
    const limit = performance.now() + HANG_LIMIT_MS;
    await program.status;
    await until(() => !pids.some(isAlive) || performance.now() > limit);
    const orphans = pids.filter(isAlive);
    for (const pid of orphans) Deno.kill(pid, "SIGKILL");
    assert.deepEqual(orphans, []);
    await reader.cancel();
  }));

Deno.test("process: what a program leaves that is killed with all its processes, the next removes", () =>
  withTemp(async (folder) => {
    const killed = async () => {
      const program = new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", fileURLToPath(new URL("./orphan_program.ts", import.meta.url))],
        stdout: "piped",
        stderr: "null",
        detached: true,
      }).spawn();
      const reader = program.stdout.getReader();
      await reader.read();
      Deno.kill(-program.pid, "SIGKILL");
      await program.status;
      await reader.cancel();
    };
    const folders = () =>
      [...Deno.readDirSync(folder)].map(({ name }) => join(folder, name)).sort();
    await using system = createSystem();
    await rogueOf(system);
    const living = folders();
    await killed();
    // What is no program's of this kind is nobody's to remove.
    const others = ["troupe-empty", "other"].map((name) => join(folder, name));
    for (const path of others) Deno.mkdirSync(path);
    assert.equal(folders().length, 4);
    checkProcesses();
    assert.deepEqual(folders(), [...living, ...others].sort());
    await killed();
    assert.equal(folders().length, 4);
    tidyRendezvousFolders();
    assert.deepEqual(folders(), [...living, ...others].sort());
    for (const path of others) Deno.removeSync(path);
    // It still works, and what it opens next does as well.
    await system.ask((await rogueOf(system, "another")).ref, { type: "Pid" });
  }));

for (
  const [what, name] of [["missing", "missing"], ["too long", "x".repeat(90)]] as const
) {
  Deno.test(`process: a folder for temporary files that is ${what} is told in one sentence`, () =>
    withTemp((folder) => {
      const path = join(folder, name);
      if (what === "too long") Deno.mkdirSync(path);
      Deno.env.set("TMPDIR", path);
      assert.throws(checkProcesses, {
        name: "RangeError",
        message: /^Cannot start a process: TMPDIR must be a folder .*, received [^\n]+$/,
      });
      if (what === "too long") Deno.removeSync(path); // which fails if anything is in it
      return Promise.resolve();
    }));
}

Deno.test("process: a tensor leaves before the next step of its sender, which may be long", () =>
  withSystem({}, async (system) => {
    const { ref } = await rogueOf(system);
    const to = system.spawn(RECORDER, undefined, { id: "recorder", isolate });
    const bytes = 2_000_000;
    // A receiver that the system lets wait is not waited for, so not every try must succeed.
    let early = 0;
    for (let count = 1; count <= 10 && early === 0; count++) {
      system.send(ref, { type: "Ship", to, bytes });
      const end = system.ask<RogueMessage, number>(ref, { type: "Busy", ms: 200 });
      await until(async () => (await notesOf(system, to)).length === count);
      const arrived = performance.timeOrigin + performance.now();
      if (arrived < await end) early++;
    }
    assert.equal(early, 1);
  }));

for (const where of ["local", "worker", "process"] as const) {
  Deno.test(`process: an actor in a process can have children: ${where}`, () =>
    withSystem({}, async (system) => {
      const { ref, pid } = await rogueOf(system);
      const [inner, notes] = await system.ask<
        RogueMessage,
        [ActorRef<ServerMessage>, ActorRef<RecorderMessage>]
      >(ref, { type: "Spawn", isolate: where });
      assert.equal(inner.isolate === ref.isolate, where === "local");
      assert.equal(await system.ask(inner, { type: "Double", n: 2 }), 4);
      system.send(notes, { type: "Watch", ref });
      await notesOf(system, notes);
      const downs = Promise.all([ref, inner, notes].map((one) => downOf(system, one)));
      Deno.kill(pid, "SIGKILL");
      const [own, ...others] = (await downs).map(({ reason }) => reason);
      assert.ok(own !== "stopped");
      // Those in the same process die with it; the others lose their parent, and stop.
      const reason = where === "local" ? "exit" : "stopped";
      assert.deepEqual(others.map((one) => one === "stopped" ? one : one.kind), [reason, reason]);
    }));
}

Deno.test("process: its imports mean what they mean in the program that starts it", async () => {
  const folder = await Deno.makeTempDir();
  const runtime = new URL("../../../actors/runtime/", import.meta.url);
  const root = new URL("../../../", import.meta.url);
  const { imports } = JSON.parse(await Deno.readTextFile(new URL("deno.json", root)));
  await Deno.mkdir(join(folder, "src"));
  await Deno.writeTextFile(
    join(folder, "deno.json"),
    JSON.stringify({
      imports: { ...imports, "lucky": "./src/lucky.ts" },
      nodeModulesDir: "none",
    }),
  );
  await Deno.writeTextFile(join(folder, "src/lucky.ts"), "export const LUCKY = 7;");
  await Deno.writeTextFile(
    join(folder, "src/main.ts"),
    `import { LUCKY } from "lucky";
    import { createSystem } from "${runtime}mod.ts";
    export const lucky = (ctx) => ({ Read() { ctx.reply(LUCKY); } });
    if (import.meta.main) {
      const system = createSystem();
      const spec = { module: import.meta.url, export: "lucky" };
      const ref = system.spawn(spec, undefined, { id: "lucky", isolate: "process" });
      console.log(await system.ask(ref, { type: "Read" }));
      await system.stop();
    }`,
  );
  // Not all permissions: the process gets those that there are.
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-lock",
      ...["read", "write", "net", "run"].map((name) => `--allow-${name}`),
      join(folder, "src/main.ts"),
    ],
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  assert.ok(success, text(stderr));
  assert.equal(text(stdout), "7\n");
  await Deno.remove(folder, { recursive: true });
});

Deno.test("a memory limit is for a process, and a positive integer", () =>
  withSystem({}, (system) => {
    const spawn = (isolate: "worker" | "process", memoryLimitMb: number) => () =>
      system.spawn(SERVER as ActorSpec<undefined>, undefined, { id: "x", isolate, memoryLimitMb });
    assert.throws(spawn("worker", 100), {
      name: "TypeError",
      message: 'Cannot spawn "x": only a process must have a memoryLimitMb',
    });
    assert.throws(spawn("process", 0.5), {
      name: "RangeError",
      message: 'Cannot spawn "x": memoryLimitMb must be a positive integer, received 0.5',
    });
    return Promise.resolve();
  }));

Deno.test({
  name: "process: a program that lacks a permission is told at once, and nothing is left",
  permissions: { read: true, write: true, run: true, env: true, net: false },
  fn: () =>
    withTemp(async () => {
      await using system = createSystem();
      assert.throws(() => system.spawn(ROGUE, undefined, { id: "rogue", isolate }), {
        name: "NotCapable",
      });
    }),
});
