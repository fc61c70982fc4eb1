import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import {
  type ActorRef,
  type Ask,
  createSystem,
  type Down,
  hashModule,
  type PackageSpec,
} from "../../../../actors/mod.ts";
import { showLines } from "../../../../actors/runtime/transports/confined/printed_lines.ts";
import { inFolder } from "../../../in_folder.ts";
import { failureOf, until, withSystem } from "../harness.ts";

type Hostile = { type: "Attack"; name: string } & Ask<string>;

const HOSTILE: PackageSpec<undefined, Hostile> = {
  from: import.meta.resolve("./fixtures/hostile.ts"),
};

/** The module of a package whose actor says what `answer` is. */
const saying = (answer: string, before = "") =>
  `${before}
  export const actor = { name: "sayer", protocol: 1, messages: { Say: {} },
    create: (ctx) => ({ Say: async () => ctx.reply(await (${answer})) }) };`;

type Sayer = { type: "Say" } & Ask<unknown>;

/** Gives a test a folder with these files, by their paths. */
function withFiles(
  files: Readonly<Record<string, string>>,
  test: (spec: (path: string) => PackageSpec<undefined, Sayer>, folder: string) => Promise<void>,
): Promise<void> {
  return inFolder(async (folder) => {
    for (const [path, text] of Object.entries(files)) {
      await Deno.mkdir(join(folder, path, ".."), { recursive: true });
      await Deno.writeTextFile(join(folder, path), text);
    }
    await test((path) => ({ from: pathToFileURL(join(folder, path)).href }), folder);
  });
}

Deno.test("what a confined actor was granted it may do, and nothing beside", () =>
  withFiles({
    "package/mod.js": saying(`(() => {
      try { return Deno.readTextFileSync(ctx.self.id); } catch (error) { return error.name; }
    })()`),
    "data/granted, too.txt": "granted",
    "other/file.txt": "not granted",
  }, (spec, folder) =>
    withSystem({}, async (system) => {
      const denied: string[] = [];
      using _ = system.subscribe((event) => event.type === "denied" && denied.push(event.on));
      const read = (id: string) => {
        const permissions = { read: [join(folder, "data")] };
        const sayer = system.spawn(spec("package/mod.js"), undefined, { id, permissions });
        return system.ask(sayer, { type: "Say" });
      };
      assert.equal(await read(join(folder, "data/granted, too.txt")), "granted");
      const other = join(folder, "other/file.txt");
      assert.equal(await read(other), "NotCapable");
      await system.stop();
      assert.deepEqual(denied, [other]);
    })));

Deno.test("what a confined actor was granted it may do as often as it likes, and what it was not is told", () =>
  withFiles({
    "mod.js": saying(`(() => {
      for (let n = 0; n < 60_000; n++) Deno.lstatSync(ctx.self.id);
      try { return Deno.readTextFileSync("/proc/version"); } catch (error) { return error.name; }
    })()`),
  }, (spec, folder) =>
    withSystem({}, async (system) => {
      const denied: string[] = [];
      using _ = system.subscribe((event) => event.type === "denied" && denied.push(event.on));
      const permissions = { read: [folder] };
      const sayer = system.spawn(spec("mod.js"), undefined, { id: folder, permissions });
      assert.equal(await system.ask(sayer, { type: "Say" }), "NotCapable");
      await system.stop();
      assert.deepEqual(denied, ["/proc/version"]);
    })));

Deno.test("what Deno's flags cannot grant is refused", () =>
  withFiles({ "mod.js": saying("1") }, (spec) =>
    withSystem({}, async (system) => {
      const permissions = { read: ["/one,/other"] };
      const sayer = system.spawn(spec("mod.js"), undefined, { id: "sayer", permissions });
      assert.match(
        (await failureOf(system, sayer)).error.message,
        /Cannot grant read: its path must have no comma, received \/one,\/other$/,
      );
    })));

Deno.test("files that change while a package is in use run with the hash that they must have, or not", () =>
  withFiles({ "mod.js": saying("1") }, (spec, folder) =>
    withSystem({}, async (system) => {
      const { from } = spec("mod.js"), { integrity } = await hashModule(from);
      const checked: PackageSpec<undefined, Sayer> = { from, integrity };
      const first = system.spawn(checked, undefined, { id: "first" });
      assert.equal(await system.ask(first, { type: "Say" }), 1);
      await Deno.writeTextFile(join(folder, "mod.js"), saying("2"));
      const second = system.spawn(checked, undefined, { id: "second" });
      assert.match(
        (await failureOf(system, second)).error.message,
        /its hash must be sha256-.*, received sha256-/,
      );
    })));

Deno.test("a confined actor sees of the environment what it was granted", () =>
  withFiles({
    "mod.js": saying(`[Deno.env.get("TROUPE_GRANTED"), (() => {
      try { return Deno.env.get("TROUPE_SECRET") ?? "absent"; } catch (error) { return error.name; }
    })()]`),
  }, (spec) =>
    withSystem({}, async (system) => {
      Deno.env.set("TROUPE_GRANTED", "yes");
      Deno.env.set("TROUPE_SECRET", "secret");
      const permissions = { env: ["TROUPE_GRANTED"] };
      const sayer = system.spawn(spec("mod.js"), undefined, { id: "sayer", permissions });
      assert.deepEqual(await system.ask(sayer, { type: "Say" }), ["yes", "NotCapable"]);
      const hostile = system.spawn(HOSTILE, undefined, { id: "hostile" });
      const seen = { type: "Attack", name: "tell what it sees of the environment" } as const;
      assert.match(await system.ask(hostile, seen), /NotCapable/);
      if (Deno.build.os !== "linux") return;
      const number = { type: "Attack", name: "tell its number" } as const;
      const pid = await system.ask(hostile, number);
      assert.ok(!Deno.readTextFileSync(`/proc/${pid}/environ`).includes("TROUPE_SECRET"));
    })));

Deno.test("names mean in a package what its own configuration says", () =>
  withFiles({
    "deno.json": `{ "name": "@a/b", "exports": "./mod.js", // a comment
      "imports": { "#own": "./own.js", "draw": "npm:pure-rand@8.4.2" } }`,
    "own.js": "export const own = 7;",
    "mod.js": saying(
      "[own, typeof xoroshiro128plus]",
      `import { own } from "#own";
       import { xoroshiro128plus } from "draw/generator/xoroshiro128plus";`,
    ),
  }, (spec) =>
    withSystem({}, async (system) => {
      const sayer = system.spawn(spec("mod.js"), undefined, { id: "sayer" });
      assert.deepEqual(await system.ask(sayer, { type: "Say" }), [7, "function"]);
    })));

Deno.test("a package that is served by a host is imported from there, and confined", () =>
  withSystem({}, async (system) => {
    await using server = Deno.serve(
      { port: 0, hostname: "127.0.0.1", onListen() {} },
      () =>
        new Response(
          saying("location === undefined ? 1 : 2", "globalThis.location ??= undefined;"),
          {
            headers: { "content-type": "text/javascript" },
          },
        ),
    );
    const from = `http://127.0.0.1:${server.addr.port}/${crypto.randomUUID()}.js`;
    const spec: PackageSpec<undefined, Sayer> = { from };
    const sayer = system.spawn(spec, undefined, { id: "sayer" });
    assert.equal(await system.ask(sayer, { type: "Say" }), 1);
  }));

Deno.test("a confined actor imports from the hosts that it was granted", () =>
  withSystem({}, async (system) => {
    const headers = { "content-type": "text/javascript" };
    await using server = Deno.serve(
      { port: 0, hostname: "127.0.0.1", onListen() {} },
      () => new Response("export const of = 'afar';", { headers }),
    );
    const host = `127.0.0.1:${server.addr.port}`;
    await withFiles(
      { "mod.js": saying("import('http://' + ctx.self.id + '/m.js').then((m) => m.of)") },
      async (spec) => {
        const permissions = { import: [host] };
        const sayer = system.spawn(spec("mod.js"), undefined, { id: host, permissions });
        assert.equal(await system.ask(sayer, { type: "Say" }), "afar");
      },
    );
  }));

for (
  const [what, files, kind, message] of [
    [
      "reads a file by importing it as text",
      { "mod.js": saying("text", `import text from "/etc/passwd" with { type: "text" };`) },
      "init",
      /could not begin: Cannot load file:.*: all that it imports must be in .*, received \/etc\/passwd$/,
    ],
    [
      "imports a file of another package",
      { "mod.js": saying("1", `import "../other.js";`), "../other.js": "" },
      "init",
      /could not begin: Cannot load .*, received .*\/other.js$/,
    ],
    [
      "imports what is not there",
      { "mod.js": saying("1", `import "./missing.js";`) },
      "init",
      /could not begin: Cannot fetch file:[^\n]* Module not found [^\n]*missing.js"\.$/,
    ],
    [
      "loops while it is imported",
      { "mod.js": "for (;;);" },
      "exit",
      /has ended: one step must take at most 300 ms$/,
    ],
    [
      "never ends to be imported",
      { "mod.js": `await new Promise(() => {});${saying("1")}` },
      "exit",
      /has ended: one step must take at most 300 ms$/,
    ],
  ] as const
) {
  Deno.test(`a package that ${what} fails its actor`, () =>
    withFiles(
      Object.fromEntries(Object.entries(files).map(([path, text]) => [join("a/b", path), text])),
      (spec) =>
        withSystem({}, async (system) => {
          const options = { id: "sayer", stepLimitMs: 300 };
          const failure = await failureOf(
            system,
            system.spawn(spec("a/b/mod.js"), undefined, options),
          );
          assert.match(failure.error.message, message);
          assert.equal(failure.kind, kind);
        }),
    ));
}

Deno.test("a package that reaches out of its folder by a link fails its actor", () =>
  withFiles({
    "a/mod.js": saying("text", `import text from "./innocent.txt" with { type: "text" };`),
  }, (spec, folder) =>
    withSystem({}, async (system) => {
      await Deno.symlink("/etc/passwd", join(folder, "a/innocent.txt"));
      const { error } = await failureOf(
        system,
        system.spawn(spec("a/mod.js"), undefined, { id: "sayer" }),
      );
      assert.match(error.message, /received \/etc\/passwd$/);
    })));

Deno.test("what cannot be granted is refused at the door", () =>
  withSystem({}, (system) => {
    const spawn = (options: object) => () =>
      system.spawn(HOSTILE, undefined, { id: "hostile", ...options });
    assert.throws(spawn({ permissions: { reed: true } }), {
      name: "TypeError",
      message:
        'Cannot spawn "hostile": its permissions must be of read, write, net, env, run, ffi, sys, import, received reed',
    });
    assert.throws(
      spawn({ permissions: { read: "/" } }),
      /must be true, false or a list of strings/,
    );
    assert.throws(spawn({ permissions: "all" }), /must be a record, or "inherit", received/);
    assert.throws(spawn({ stepLimitMs: 0 }), /stepLimitMs must be a positive number, received 0/);
    assert.throws(
      spawn({ memoryLimitMb: 95 }),
      /memoryLimitMb must be at least 96, .* received 95/,
    );
    assert.throws(spawn({ isolate: "local" }), /a local cannot confine the actor of a package/);
    return Promise.resolve();
  }));

/** Runs a program of this folder. */
function program(path: string, flags: readonly string[]): Deno.ChildProcess {
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", ...flags, fileURLToPath(new URL(path, import.meta.url))],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

Deno.test("a program that may not do everything confines, and grants no more than it has", async () => {
  const flags = ["--allow-run", "--allow-read", "--allow-write"];
  const { stdout, stderr } = await program("./limited_program.ts", flags).output();
  const told = new TextDecoder().decode(stdout) || assert.fail(new TextDecoder().decode(stderr));
  const { refusals, said, ended } = JSON.parse(told);
  assert.equal(said, "sibling");
  assert.match(ended, /it must hold at most 160 MiB of memory, and held/);
  const lacks =
    `NotCapable: Cannot spawn "greedy": it must be granted no more than this program has, which lacks`;
  assert.deepEqual(refusals, [`${lacks} net as a whole`, `${lacks} env of HOME`, "spawned"]);
});

function isAlive(pid: number): boolean {
  try {
    // A process that nobody has waited for is none any more.
    return !/^State:\s*Z/m.test(Deno.readTextFileSync(`/proc/${pid}/status`));
  } catch {
    return false;
  }
}

Deno.test({
  name:
    "a confined process ends with its program, also in an endless loop; what it prints is marked",
  ignore: Deno.build.os !== "linux",
  async fn() {
    const killed = program("./orphan_program.ts", ["-A"]);
    const stdout = killed.stdout.pipeThrough(new TextDecoderStream()).getReader();
    const pid = Number((await stdout.read()).value);
    // As Ctrl-C does: what that means is for the program to say.
    const { stdout: children } = await new Deno.Command("ps", {
      args: ["-o", "pid=", "--ppid", `${killed.pid}`],
    }).output();
    const pids = new TextDecoder().decode(children).trim().split(/\s+/).map(Number);
    assert.ok(pids.includes(pid) && pids.length > 1);
    for (const child of pids) Deno.kill(child, "SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.ok(pids.every(isAlive));
    killed.kill("SIGKILL");
    await until(() => !isAlive(pid));
    await stdout.cancel();
    const printed = await new Response(killed.stderr).text();
    assert.ok(printed.startsWith("[hos\\u001btile] printed\\u001b[2J\\u000dover\n"), printed);
    for (const line of printed.trimEnd().split("\n")) assert.match(line, /^\[hos\\u001btile\] /);
    await killed.status;
  },
});

Deno.test("of what a confined actor prints without end, a part is shown", async () => {
  const shown: string[] = [], total = 5000;
  const lines = Array.from({ length: total }, (_, n) => `line ${n} ${"x".repeat(2000)}\n`);
  const stream = ReadableStream.from([lines.join("")]).pipeThrough(new TextEncoderStream());
  await showLines(stream.getReader(), "a", (line) => shown.push(line));
  assert.ok(shown.every((line) => line.length <= 1100));
  const more = shown.flatMap((line) => /^\[a\] … and (\d+) lines more$/.exec(line)?.[1] ?? []);
  const hidden = more.reduce((sum, count) => sum + Number(count), 0);
  assert.ok(shown.length - more.length + hidden === total && shown.length < total / 5);
});

Deno.test("what a confined actor keeps is gone with it, also while others live", () =>
  withFiles({
    "mod.js": saying(
      "(localStorage.setItem('a', 'b'), process.cwd())",
      'import process from "node:process";',
    ),
  }, (spec) =>
    withSystem({}, async (system) => {
      const permissions = { read: true };
      const [first, second] = ["first", "second"].map((id) =>
        system.spawn(spec("mod.js"), undefined, { id, permissions })
      ) as [ActorRef<Sayer>, ActorRef<Sayer>];
      const folder = `${await system.ask(first, { type: "Say" })}`;
      assert.ok(existsSync(join(folder, "cache", "location_data")));
      assert.notEqual(await system.ask(second, { type: "Say" }), folder);
      await system.stop(first);
      await until(() => !existsSync(folder));
      await system.ask(second, { type: "Say" });
    })));

Deno.test("a confined process that is stopped while its modules are fetched never begins", () =>
  withSystem({}, async (system) => {
    const hostile = system.spawn(HOSTILE, undefined, { id: "hostile" });
    const down = new Promise<Down>((resolve) => system.watch(hostile, resolve));
    await system.stop(hostile);
    await down;
    await using another = createSystem();
    const next = another.spawn(HOSTILE, undefined, { id: "next" });
    assert.equal(await another.ask(next, { type: "Attack", name: "work" }), "sibling");
  }));
