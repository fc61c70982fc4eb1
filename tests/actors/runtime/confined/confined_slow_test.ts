/** Actors of packages in processes and workers that may do what they were granted, and no more. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import {
  type ActorRef,
  type Ask,
  hashModule,
  type PackageSpec,
  type Permissions,
  type SpawnOptions,
  type System,
} from "../../../../actors/mod.ts";
import { showLines } from "../../../../actors/runtime/transports/confined/printed_lines.ts";
import { folderTest, inFolder } from "../../../in_folder.ts";
import { childProcesses } from "../../child_processes.ts";
import { failureOf, until, withSystem } from "../harness.ts";

const HOSTILE = { from: import.meta.resolve("./fixtures/hostile.ts") };

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
  /** The permissions that were denied so far, by the values that they are about. */
  readonly denied: readonly string[];
  /** Spawns the actor of a module in the folder. */
  spawn(path: string, options?: Partial<SpawnOptions>): ActorRef<Sayer>;
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
      for (const [path, text] of Object.entries(files)) {
        await Deno.mkdir(join(folder, path, ".."), { recursive: true });
        await Deno.writeTextFile(join(folder, path), text);
      }
      await withSystem({}, async (system) => {
        const denied: string[] = [];
        using _ = system.subscribe((event) => event.type === "denied" && denied.push(event.on));
        const spawn = (path: string, options: Partial<SpawnOptions> = {}) => {
          const from = pathToFileURL(join(folder, path)).href;
          return system.spawn<undefined, Sayer>({ from }, undefined, { id: "sayer", ...options });
        };
        const say = (path: string, permissions: Permissions = {}, id = "sayer") =>
          system.ask(spawn(path, { id, permissions }), { type: "Say" });
        await test({ system, folder, denied, spawn, say });
      });
    }));
}

packageTest("a confined actor reads the folders that it was granted, as often as it likes", {
  "package/mod.js": saying(trying("Deno.readTextFileSync(ctx.self.id)")),
  "package/often.js": saying(
    `(() => { for (let n = 0; n < 30_000; n++) Deno.lstatSync(ctx.self.id); })() ?? ${
      trying('Deno.readTextFileSync("/proc/version")')
    }`,
  ),
  "data/granted, too.txt": "granted",
  "data too/file.txt": "not granted",
}, async ({ system, folder, denied, say }) => {
  const data = join(folder, "data"), permissions = { read: [data] };
  const [granted, other] = [join(data, "granted, too.txt"), join(folder, "data too/file.txt")];
  assert.equal(await say("package/mod.js", permissions, granted), "granted");
  assert.equal(await say("package/mod.js", permissions, other), "NotCapable");
  assert.equal(await say("package/often.js", permissions, data), "NotCapable");
  await system.stop();
  assert.deepEqual(denied, [other, "/proc/version"]);
});

packageTest("a confined actor sees the variables of the environment that it was granted", {
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
  const { integrity } = await hashModule(from), spec: PackageSpec<undefined, Sayer> = { from };
  const spawn = (id: string) => system.spawn({ ...spec, integrity }, undefined, { id });
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
  const spec: PackageSpec<undefined, Sayer> = { from: `http://${host}/${crypto.randomUUID()}.js` };
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
  "missing.js": [saying("1", `import "./none.js";`), /fetch .* Module not found [^\n]*none.js"\.$/],
  "wait.js": [`await new Promise(() => {});${saying("1")}`, STEP],
} as const;

packageTest("a package that imports foreign files, or does not load in time, fails its actor", {
  ...Object.fromEntries(Object.entries(FAILING).map(([path, [text]]) => [`a/${path}`, text])),
  "b/other.js": "",
}, async ({ system, folder, spawn }) => {
  await Deno.symlink("/etc/passwd", join(folder, "a/link"));
  for (const [path, [, message]] of Object.entries(FAILING)) {
    const failure = await failureOf(system, spawn(`a/${path}`, { stepLimitMs: 300 }));
    assert.match(failure.error.message, message);
    assert.equal(failure.kind, message === STEP ? "exit" : "init", path);
  }
});

Deno.test("options that cannot be granted are refused before anything starts", () =>
  withSystem({}, async (system) => {
    const cannot = 'Cannot spawn "hostile": its permissions must be of';
    for (
      const [options, sentence] of [
        [
          { permissions: { reed: true } },
          `${cannot} read, write, net, env, run, ffi, sys, import, received reed`,
        ],
        [{ permissions: { read: "/" } }, "must be true, false or a list of strings"],
        [{ permissions: { read: [""] } }, "must be true, false or a list of strings"],
        [{ permissions: "all" }, 'must be a record, or "inherit", received'],
        [{ stepLimitMs: 0 }, "stepLimitMs must be a positive number, received 0"],
        [{ memoryLimitMb: 95 }, "memoryLimitMb must be at least 96"],
        [{ isolate: "local" }, "a local cannot confine the actor of a package"],
      ] as const
    ) {
      assert.throws(
        () => system.spawn(HOSTILE, undefined, { id: "hostile", ...options as object }),
        ({ message }: Error) => message.includes(sentence),
        sentence,
      );
    }
    // Deno's flags cannot say it.
    const permissions = { read: ["/one,/other"] };
    const { error } = await failureOf(
      system,
      system.spawn(HOSTILE, undefined, { id: "comma", permissions }),
    );
    assert.match(
      error.message,
      /Cannot grant read: its path must have no comma, .* \/one,\/other$/,
    );
  }));

/** Runs a program of this folder. */
function program(flags: readonly string[], ...args: readonly string[]): Deno.ChildProcess {
  const path = fileURLToPath(new URL("./programs.ts", import.meta.url));
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", ...flags, path, ...args],
    ...{ stdin: "null", stdout: "piped", stderr: "piped" },
  }).spawn();
}

/** The JSON that a program prints at its end. */
async function printedBy(child: Deno.ChildProcess): Promise<Record<string, unknown>> {
  const { stdout, stderr } = await child.output(), decoder = new TextDecoder();
  return JSON.parse(decoder.decode(stdout) || assert.fail(decoder.decode(stderr)));
}

Deno.test("a program with few permissions confines actors, and grants no more than it has", async () => {
  const flags = ["--allow-run", "--allow-read", "--allow-write"];
  const { refusals, said, ended } = await printedBy(program(flags, "limited"));
  assert.equal(said, "worked");
  assert.match(ended as string, /it must hold at most 160 MiB of memory, and held/);
  const lacks =
    `NotCapable: Cannot spawn "greedy": it must be granted no more than this program has, which lacks`;
  assert.deepEqual(refusals, [`${lacks} net as a whole`, `${lacks} env of HOME`, "spawned"]);
});

function isAlive(pid: number): boolean {
  try {
    // A process whose parent has not waited for it yet counts as ended.
    return !/^State:\s*Z/m.test(Deno.readTextFileSync(`/proc/${pid}/status`));
  } catch {
    return false;
  }
}

Deno.test({
  name: "a confined process in an endless loop ends with its program; its lines are marked",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    inFolder(async (folder) => {
      const killed = program(["-A"], "orphan", folder);
      const stdout = killed.stdout.pipeThrough(new TextDecoderStream()).getReader();
      const pid = Number((await stdout.read()).value);
      // Ctrl-C reaches all processes of a terminal; only the program decides what it means.
      const pids = childProcesses(killed.pid);
      assert.ok(pids.includes(pid) && pids.length > 1);
      for (const child of pids) Deno.kill(child, "SIGINT");
      await new Promise((resolve) => setTimeout(resolve, 100));
      assert.ok(pids.every(isAlive));
      killed.kill("SIGKILL");
      await until(() => !pids.some(isAlive));
      await stdout.cancel();
      const printed = await new Response(killed.stderr).text();
      assert.ok(printed.startsWith("[hos\\u001btile] printed\\u001b[2J\\u000dover\n"), printed);
      for (const line of printed.trimEnd().split("\n")) assert.match(line, /^\[hos\\u001btile\] /);
      await killed.status;
      assert.deepEqual([...Deno.readDirSync(folder)], []);
    }),
});

Deno.test("a part of endless output is shown, and the rest is counted", async () => {
  const shown: string[] = [], total = 5000;
  const lines = Array.from({ length: total }, (_, n) => `line ${n} ${"x".repeat(2000)}\n`);
  const stream = ReadableStream.from([lines.join("")]).pipeThrough(new TextEncoderStream());
  await showLines(stream.getReader(), "a", (line) => shown.push(line));
  assert.ok(shown.every((line) => line.length <= 1100));
  const more = shown.flatMap((line) => /^\[a\] … and (\d+) lines more$/.exec(line)?.[1] ?? []);
  const hidden = more.reduce((sum, count) => sum + Number(count), 0);
  assert.ok(shown.length - more.length + hidden === total && shown.length < total / 5);
});

packageTest("the cache of a confined actor is removed with it, while others live", {
  "mod.js": saying(
    "(localStorage.setItem('a', 'b'), process.cwd())",
    'import process from "node:process";',
  ),
}, async ({ system, spawn }) => {
  const [first, second] = ["first", "second"].map((id) =>
    spawn("mod.js", { id, permissions: { read: true } })
  );
  const say = { type: "Say" } as const;
  const folder = `${await system.ask(first!, say)}`;
  assert.ok(existsSync(join(folder, "cache", "location_data")));
  assert.notEqual(await system.ask(second!, say), folder);
  await system.stop(first!);
  await until(() => !existsSync(folder));
  await system.ask(second!, say);
});

const NO_PERMISSIONS = /^permissions of workers want .* --unstable-worker-options, or its deno/;

const NPM = /^a worker may import any package of npm unless/;

/** Flags of a program that asks for a worker, and why it gets a process instead. */
const WORKERS: Readonly<Record<string, RegExp | undefined>> = {
  "--unstable-worker-options --cached-only --frozen": undefined,
  "--cached-only --frozen": NO_PERMISSIONS,
  "--unstable-worker-options --frozen": NPM,
};

for (const [flags, why] of Object.entries(WORKERS)) {
  const place = why ? "a process, which is reported" : "a worker";
  folderTest(`with ${flags}, a package in a worker gets ${place}`, async (folder) => {
    const path = join(folder, "hostile.ts"), text = await Deno.readTextFile(new URL(HOSTILE.from));
    // In the repository a package can import names, which a worker cannot give a meaning.
    await Deno.writeTextFile(path, text.replace(/^import type .*$/m, ""));
    const child = program(["-A", ...flags.split(" ")], "worker", pathToFileURL(path).href);
    const { isWorker, read, npm, ended, events } = await printedBy(child);
    const capable = 'Requires read access to "/etc/passwd", run again with the --allow-read flag';
    assert.deepEqual({ isWorker, read }, { isWorker: !why, read: `NotCapable: ${capable}` });
    if (why) return assert.match(`${events}`, why);
    assert.match(`${ended}`, /^the worker of "hostile" has ended: one step must take at most/);
    assert.match(`${npm}`, /^TypeError: /);
    assert.deepEqual(events, []);
  });
}
