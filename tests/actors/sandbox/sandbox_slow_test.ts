/** Actors of packages in processes and workers with the permissions that they were granted. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { ActorRef, Ask, System } from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { hashModule } from "../../../actors/sandbox/modules.ts";
import { packageActor, type SandboxOptions } from "../../../actors/sandbox/host.ts";
import type { Permissions } from "../../../actors/sandbox/define.ts";
import { showLines } from "../../../actors/sandbox/start.ts";
import { random } from "../../../actors/simulation/strategies.ts";
import { replayInbox } from "../../../actors/simulation/replay_actor.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import type { World } from "../../../actors/simulation/run.ts";
import { writeJournal } from "../../../actors/simulation/journal_writer.ts";
import { parseJournal } from "../simulation/forged.ts";
import { folderTest, inFolder } from "../../in_folder.ts";
import { writeFiles } from "../../package/packages.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { ROOT } from "../../repository.ts";
import { childProcesses, isAlive } from "../child_processes.ts";
import { Running } from "../../console/running.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { failureOf, withSystem } from "../runtime/harness.ts";

const HOSTILE = import.meta.resolve("./fixtures/hostile.ts");

/** The module of a package whose actor answers with the value of an expression. */
const saying = (answer: string, before = "") =>
  `${before}
  export const actor = { name: "sayer", protocol: 1, messages: { Say: {} },
    create: (ctx) => ({ Say: async () => ctx.reply(await (${answer})) }) };`;

/** The same; an error is answered with its name. */
const trying = (expression: string) =>
  `(() => { try { return ${expression}; } catch (error) { return error.name; } })()`;

type Sayer = { type: "Say" } & Ask<unknown>;

/** A folder with packages, and a system for them. */
interface Given {
  readonly system: System;
  readonly folder: string;
  /** Spawns the actor of a module in the folder. */
  spawn(path: string, options?: Partial<SandboxOptions>, id?: string): ActorRef<Sayer>;
  /** Spawns it, and asks it. */
  say(path: string, permissions?: Permissions, id?: string): Promise<unknown>;
}

/** Registers a test that gets a folder with these files, by their paths. */
function packageTest(
  name: string,
  files: Readonly<Record<string, string>>,
  test: (given: Given) => Promise<void>,
): void {
  Deno.test(name, () =>
    inFolder(async (folder) => {
      await writeFiles(folder, files);
      await withSystem({}, async (system) => {
        const spawn = (path: string, options: Partial<SandboxOptions> = {}, id = "sayer") => {
          const from = pathToFileURL(join(folder, path)).href;
          const spec = packageActor<undefined, Sayer>({ from, ...options });
          return system.spawn(spec, undefined, { id });
        };
        const say = (path: string, permissions: Permissions = {}, id = "sayer") =>
          system.ask(spawn(path, { permissions }, id), { type: "Say" });
        await test({ system, folder, spawn, say });
      });
    }));
}

packageTest("a package's actor reads the folders that it was granted", {
  "package/mod.js": saying(trying("Deno.readTextFileSync(ctx.self.id)")),
  "data/granted too.txt": "granted",
  "data too/file.txt": "not granted",
}, async ({ folder, say }) => {
  const data = join(folder, "data"), permissions = { read: [data] };
  const [granted, other] = [join(data, "granted too.txt"), join(folder, "data too/file.txt")];
  assert.equal(await say("package/mod.js", permissions, granted), "granted");
  assert.equal(await say("package/mod.js", permissions, other), "NotCapable");
});

packageTest("a package's actor sees the variables of the environment that it was granted", {
  "mod.js": saying(
    `[Deno.env.get("TROUPE_GRANTED"), ${trying('Deno.env.get("TROUPE_SECRET")')}, ${
      trying("Deno.env.toObject()")
    }, Deno.pid, new Promise(() => {})].slice(0, 4)`,
  ),
}, async ({ system, spawn }) => {
  for (const name of ["GRANTED", "SECRET"]) Deno.env.set(`TROUPE_${name}`, `${name} value`);
  const sayer = spawn("mod.js", { permissions: { env: ["TROUPE_GRANTED"] } });
  const [pid, ...seen] = (await system.ask(sayer, { type: "Say" }) as unknown[]).reverse();
  assert.deepEqual(seen, ["NotCapable", "NotCapable", "GRANTED value"]);
  if (Deno.build.os !== "linux") return;
  const environment = Deno.readTextFileSync(`/proc/${pid}/environ`);
  assert.ok(environment.includes("TROUPE_GRANTED") && !environment.includes("TROUPE_SECRET"));
});

packageTest("a package whose files change while it is in use is refused for its hash", {
  "mod.js": saying("1"),
}, async ({ system, folder }) => {
  const path = join(folder, "mod.js"), from = pathToFileURL(path).href;
  const { integrity } = await hashModule(from);
  const spec = packageActor<undefined, Sayer>({ from, integrity });
  const spawn = (id: string) => system.spawn(spec, undefined, { id });
  assert.equal(await system.ask(spawn("first"), { type: "Say" }), 1);
  await Deno.writeTextFile(path, saying("2"));
  system.failed.catch(() => {}); // it is the answer's failure
  const answer = system.ask(spawn("second"), { type: "Say" });
  await assert.rejects(answer, /its hash must be sha256-.*, received sha256-/);
});

packageTest("the names in a package mean what its own configuration says", {
  "deno.json": `{ "name": "@a/b", "exports": "./mod.js", // a comment
    "imports": { "#own": "./own.js", "draw": "npm:pure-rand@8.4.2" } }`,
  "own.js": "export const own = 7;",
  "mod.js": saying(
    "[own, typeof xoroshiro128plus]",
    `import { own } from "#own";
     import { xoroshiro128plus } from "draw/generator/xoroshiro128plus";`,
  ),
}, async ({ say }) => assert.deepEqual(await say("mod.js"), [7, "function"]));

packageTest("a package is imported from its own host, and from hosts that it was granted", {
  "mod.js": saying("import('http://' + ctx.self.id + '/m.js').then((m) => m.of, String)"),
}, async ({ system, say }) => {
  const served = saying("location === undefined", "globalThis.location ??= undefined;");
  const headers = { "content-type": "text/javascript" };
  await using server = Deno.serve(
    { port: 0, hostname: "127.0.0.1", onListen() {} },
    () => new Response(`export const of = "afar"; ${served}`, { headers }),
  );
  const host = `127.0.0.1:${server.addr.port}`;
  const from = `http://${host}/${crypto.randomUUID()}.js`;
  const spec = packageActor<undefined, Sayer>({ from });
  const remote = system.spawn(spec, undefined, { id: "remote" });
  assert.equal(await system.ask(remote, { type: "Say" }), true);
  assert.equal(await say("mod.js", { import: [host] }, host), "afar");
  const denied = await say("mod.js", { import: ["127.0.0.1:1"] }, `${host}/3`);
  assert.match(`${denied}`, /^TypeError: Requires import access to "127/);
});

const STEP = /has ended: one step must take at most 300 ms$/;

const FOREIGN = /Cannot load file:.*: all that it imports.*(passwd|received .*\/b\/other.js)$/;

/** Packages that fail before their actor is there. */
const FAILING = {
  "text.js": [saying("text", `import text from "/etc/passwd" with { type: "text" };`), FOREIGN],
  "other.js": [saying("1", `import "../b/other.js";`), FOREIGN],
  "link.js": [saying("text", `import text from "./link" with { type: "text" };`), FOREIGN],
  "comma.js": [
    saying("text", `import text from "./x,/etc/passwd" with { type: "text" };`),
    /Cannot grant read: it must have no comma, received .*\/a\/x,\/etc\/passwd$/,
  ],
  "missing.js": [saying("1", `import "./none.js";`), /fetch .* Module not found [^\n]*none.js"\.$/],
  "wait.js": [`await new Promise(() => {});${saying("1")}`, STEP],
} as const;

packageTest("a package that imports foreign files, or does not load in time, fails its actor", {
  ...Object.fromEntries(Object.entries(FAILING).map(([path, [text]]) => [`a/${path}`, text])),
  "b/other.js": "",
  "a/x,/etc/passwd": "no secret",
}, async ({ system, folder, spawn }) => {
  await Deno.symlink("/etc/passwd", join(folder, "a/link"));
  for (const [path, [, message]] of Object.entries(FAILING)) {
    const failure = await failureOf(system, spawn(`a/${path}`, { stepLimitMs: 300 }));
    assert.match(failure.error.message, message);
    assert.equal(failure.kind, "init", path);
  }
});

Deno.test("options that cannot be granted are refused before anything starts", async () => {
  const use = (options: object) => packageActor({ from: HOSTILE, ...options });
  await using system = createSystem();
  const comma = async () => {
    const spec = use({ permissions: { read: ["/a,/b"] } });
    const { error } = await failureOf(system, system.spawn(spec, undefined as never, { id: "a" }));
    throw new Error(error.message);
  };
  await assertRefused("sandbox_options", [
    () => use({ permissions: { reed: true } }),
    () => use({ permissions: { read: "/" } }),
    () => use({ permissions: { read: [""] } }),
    () => use({ permissions: "all" }),
    () => use({ stepLimitMs: 0 }),
    () => use({ isolate: "local" }),
    () => use({ sends: { A: { $ref: "#/x" } } }),
    () => use({ from: "mod.ts" }),
    () => system.spawn({ from: HOSTILE } as never, undefined as never, { id: "a" }),
    ["a folder with a comma", comma],
  ], { "ROOT/": pathToFileURL(ROOT).href });
});

/** Starts a program of this folder. */
const program = (flags: readonly string[], ...args: readonly string[]) =>
  new Running([
    ...["run", "--no-prompt", ...flags],
    ...[fileURLToPath(new URL("./programs.ts", import.meta.url)), ...args],
  ]);

/** The JSON that a program prints at its end. */
async function printedBy(program: Running): Promise<Record<string, unknown>> {
  const { stdout, stderr } = await program.end(HANG_LIMIT_MS);
  return JSON.parse(stdout || assert.fail(stderr));
}

Deno.test("a program with few permissions grants no more than it has", async () => {
  const flags = ["--allow-run", "--allow-read", "--allow-write"];
  const { refusals, said } = await printedBy(program(flags, "limited"));
  assert.equal(said, "worked");
  const lacks =
    `NotCapable: Cannot use "actor" of ${HOSTILE}: it must be granted no more than this ` +
    "program has, which lacks";
  assert.deepEqual(refusals, [`${lacks} net as a whole`, `${lacks} env of HOME`, "granted"]);
});

Deno.test({
  name: "a process in an endless loop ends with its program; its lines are marked",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    inFolder(async (folder) => {
      const killed = program(["-A"], "orphan", folder);
      await killed.printed("stdout", /\d/);
      // Ctrl-C reaches all processes of a terminal; only the program reacts to it.
      const pids = childProcesses(killed.pid);
      assert.ok(pids.includes(Number(killed.stdout)) && pids.length > 1);
      for (const child of pids) Deno.kill(child, "SIGINT");
      await new Promise((resolve) => setTimeout(resolve, 100));
      assert.ok(pids.every(isAlive));
      killed.kill();
      const { stderr: printed } = await killed.end(HANG_LIMIT_MS);
      assert.ok(!pids.some(isAlive));
      assert.ok(printed.startsWith("[hos\\u001btile] printed\\u001b[2J\\u000dover\n"), printed);
      for (const line of printed.trimEnd().split("\n")) assert.match(line, /^\[hos\\u001btile\] /);
      assert.deepEqual([...Deno.readDirSync(folder)], []);
    }),
});

Deno.test("a part of endless output is shown", async () => {
  const shown: string[] = [], total = 5000;
  const lines = Array.from({ length: total }, (_, n) => `line ${n} ${"x".repeat(2000)}\n`);
  const stream = ReadableStream.from([lines.join("")]).pipeThrough(new TextEncoderStream());
  await showLines(stream.getReader(), "a", (line) => shown.push(line));
  assert.ok(shown.every((line) => line.length <= 1100) && shown.length < total / 5);
  assert.match(shown[0]!, /^\[a\] line 0 x+$/);
  assert.ok(shown.includes("[a] … and more in this second"));
});

packageTest("the folder of a process is removed with it, and others keep theirs", {
  "mod.js": saying("process.cwd()", 'import process from "node:process";'),
}, async ({ system, spawn }) => {
  const [first, second] = ["first", "second"].map((id) =>
    spawn("mod.js", { permissions: { read: true } }, id)
  );
  const say = { type: "Say" } as const;
  const folder = `${await system.ask(first!, say)}`;
  assert.ok(existsSync(join(folder, "cache")));
  assert.notEqual(await system.ask(second!, say), folder);
  await system.stop(first!);
  assert.ok(!existsSync(folder));
  await system.ask(second!, say);
});

packageTest("an actor asks, answers later, and draws the same numbers from the same seed", {
  "mod.js": `export const actor = {
    name: "a", protocol: 1, messages: { Say: {}, Tick: {} },
    create(ctx, friend) {
      let later;
      return {
        async Say() {
          later = ctx.deferReply();
          const answers = await Promise.all([1, 2].map((n) => ctx.ask(friend, { type: "Ask", n })));
          const failed = await ctx.ask(friend, { type: "No" }).catch((error) => error.message);
          ctx.after(1, { type: "Tick", answers, failed });
        },
        Tick({ answers, failed }) {
          const { name } = (() => { try { ctx.send(1); } catch (error) { return error; } })() ?? {};
          later([...answers, failed, name, ctx.random("a"), ctx.random("a") < 1, ctx.now() > 0]);
        },
      };
    },
  };`,
}, async ({ folder }) => {
  const module =
    "data:text/javascript,export const f = (ctx) => ({ Ask: ({ n }) => ctx.reply(-n) })";
  const from = pathToFileURL(join(folder, "mod.js")).href;
  const spec = packageActor<ActorRef, Sayer>({ from, sends: { Ask: {}, No: {} } });
  const drawn: unknown[] = [];
  for (const seed of [1, 1, 2]) {
    await using other = createSystem({ seed });
    const friend = other.spawn({ module, export: "f" }, undefined as never, { id: "friend" });
    const asker = other.spawn(spec, friend, { id: "asker" });
    const answers = await other.ask(asker, { type: "Say" });
    const [first, second, failed, name, draw, ...rest] = answers as unknown[];
    assert.deepEqual([first, second, name, ...rest], [-1, -2, "TypeError", true, true]);
    assert.match(`${failed}`, /^Cannot ask "friend" for "No": its type must be one that/);
    drawn.push(draw);
  }
  assert.ok(drawn[0] === drawn[1] && drawn[0] !== drawn[2]);
});

/** Flags of a program that asks for a worker, and whether it gets one. */
const WORKERS = {
  "--unstable-worker-options --cached-only --frozen": true,
  "--cached-only --frozen": false,
  "--unstable-worker-options --frozen": false,
};

for (const [flags, isHeld] of Object.entries(WORKERS)) {
  folderTest(`with ${flags}, a worker ${isHeld ? "is held" : "is refused"}`, async (folder) => {
    const path = join(folder, "hostile.ts"), text = await Deno.readTextFile(new URL(HOSTILE));
    // In the repository a package can import names, which a worker cannot give a meaning.
    await Deno.writeTextFile(path, text.replace(/^import type .*$/m, ""));
    const child = program(["-A", ...flags.split(" ")], "worker", pathToFileURL(path).href);
    const { isWorker, read, npm, ended, refused } = await printedBy(child);
    if (!isHeld) {
      return assert.match(`${refused}`, /in a worker: .* --unstable-worker-options, --c/);
    }
    const capable = 'Requires read access to "/etc/passwd", run again with the --allow-read flag';
    assert.deepEqual({ isWorker, read }, { isWorker: true, read: `NotCapable: ${capable}` });
    assert.match(`${ended}`, /^the worker of "hostile" has ended: one step must take at most/);
    assert.match(`${npm}`, /^TypeError: /);
  });
}

/** Actors of packages under a virtual clock, and their journals. */

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

const FROM = import.meta.resolve("./fixtures/counter.ts");

for (const permissions of [{}, "inherit"] as const) {
  const how = permissions === "inherit" ? "that is trusted" : "in a sandbox";
  folderTest(`an actor ${how} runs the same again, and its inbox replays`, async (folder) => {
    const spec = packageActor<number, Counter>({ from: FROM, permissions });
    const scenario = async ({ system }: World) => {
      const counter = system.spawn(spec, 40, { id: "counter" });
      system.send(counter, { type: "Add", by: 2 });
      await assert.rejects(system.ask(counter, { type: "Add", by: "2" } as never), TypeError);
      assert.equal(await system.ask(counter, { type: "Read" }), 42);
    };
    const path = `${folder}/run.jsonl`;
    const pen = await writeJournal({ path, seed: 3, payloads: true });
    const run = await simulate({ seed: 3, strategy: random(), ...pen }, scenario);
    pen.close();
    assert.equal(run.failure, undefined);
    const again = await simulate({ seed: 3, strategy: random() }, scenario);
    assert.equal(again.hash, run.hash);
    // Its messages and what its process said are in the journal: no process is started.
    const journal = parseJournal(await Deno.readTextFile(path));
    const { steps, compared } = await replayInbox(spec, journal, { id: "counter" });
    assert.ok(steps >= 4 && compared >= 2, `${steps} ${compared}`);
  });
}
