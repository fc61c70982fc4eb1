/** Programs with processes: their permissions, their imports, and what is exported of them. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { createSystem } from "../../../actors/runtime/mod.ts";
import {
  ENVIRONMENT,
  inFolder,
  ROOT,
  runTrain,
  someTokens,
  TINY,
  writeTokens,
} from "../../console/command.ts";
import { atDepth } from "../../depth.ts";
import { failureOf, withSystem } from "./harness.ts";
import { CLIENT, PARENT, SERVER } from "./players.ts";
import { PROBE } from "./probe.ts";

const NEEDED = ["--allow-run", "--allow-read", "--allow-write", "--allow-net"];

const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

/** Runs a program that has a process, with these permissions. */
async function run(flags: readonly string[]): Promise<{ stdout: string; stderr: string }> {
  const { stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", ...flags, "tests/actors/runtime/program.ts", "permissions"],
    cwd: ROOT,
    env: ENVIRONMENT,
    stdin: "null",
  }).output();
  return { stdout: decode(stdout), stderr: decode(stderr) };
}

const LESS = ["-A", "--deny-env", "--deny-sys", "--deny-import"];

for (
  const flags of atDepth([NEEDED, LESS], [
    ...[["-A"], NEEDED, LESS, ["-A", "--deny-ffi"]],
    [...NEEDED, "--allow-env", "--allow-sys"],
    [...NEEDED, "--allow-ffi", "--allow-import"],
  ])
) {
  Deno.test(`a process has the permissions of its program: ${flags.join(" ")}`, async () => {
    const { stdout, stderr } = await run(flags);
    const [own, child] = JSON.parse(stdout || assert.fail(stderr));
    assert.deepEqual(child, own);
  });
}

const REFUSED: readonly (readonly [readonly string[], string])[] = [
  [["-A", "--deny-net"], "net denied"],
  [["-A", "--deny-write=LICENSE", "--deny-env=HOME"], "write denied in part, env denied in part"],
  [[...NEEDED.slice(1), `--allow-run=${Deno.execPath()}`], "run not granted as a whole"],
  [["-A", "--deny-read=LICENSE"], "read denied in part"],
  [["-A", "--ignore-read=LICENSE"], "read denied in part"],
  [["-A", "--deny-net=192.0.2.1"], "net denied in part"],
  [["-A", "--deny-run=ls"], "run denied in part"],
  [["-A", "--deny-sys=hostname"], "sys denied in part"],
  [["-A", "--deny-ffi=/lib"], "ffi denied in part"],
  [["-A", "--deny-import=example.com"], "import denied in part"],
  [[...NEEDED.filter((flag) => flag !== "--allow-read"), "--allow-read=."], "read not granted"],
];

for (const [flags, received] of atDepth(REFUSED.slice(0, 3), REFUSED)) {
  Deno.test(`a program with ${flags.join(" ")} gets no process`, async () => {
    const { stdout, stderr } = await run(flags);
    assert.equal(stdout, "");
    assert.match(stderr, /NotCapable: Cannot start a process: it gets the permissions of this /);
    assert.ok(stderr.includes(`received ${received}`), stderr);
  });
}

Deno.test("a run whose processes would read what it may not is refused before it begins", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(600)), out = `${folder}/out`;
    const train = [...TINY, "--steps", "1", "--tokens", tokens, "--out", out];
    const { code, stdout, stderr } = await runTrain([...train, "--isolation", "process"], [
      "--deny-read=LICENSE",
    ]);
    assert.deepEqual({ code, stdout }, { code: 2, stdout: "" });
    assert.match(stderr, /^Cannot start a process: [^\n]+, received read denied in part\n$/);
    await assert.rejects(Deno.stat(out), Deno.errors.NotFound);
  }));

const LIMITED = { isolate: "process", permissions: {} } as const;

Deno.test("an actor that may do nothing reaches others; one that may more does no more", () =>
  withSystem({}, async (system) => {
    const server = system.spawn(SERVER, undefined, { id: "server", ...LIMITED });
    const client = system.spawn(CLIENT, undefined, { id: "client", ...LIMITED });
    for (const _ of [1, 2]) {
      assert.deepEqual(await system.ask(client, { type: "Both", to: server }), [2, 4]);
    }
    const permissions = { read: ["/etc"], env: true };
    const probe = system.spawn(PROBE, undefined, { id: "probe", ...LIMITED, permissions });
    const tried: string[] = [];
    for (const what of ["read", "env", "run", "connect"]) {
      tried.push(await system.ask(probe, { type: "Try", what }));
    }
    assert.deepEqual(tried, ["did it", "did it", "NotCapable", "NotCapable"]);
    const disk = { permissions: { disk: true } as object };
    assert.throws(
      () => system.spawn(PROBE, undefined, { id: "x", ...LIMITED, ...disk }),
      /TypeError: Cannot spawn "x": its permissions must be of read, .*received disk/,
    );
  }));

for (const isolate of ["process", "worker"] as const) {
  Deno.test(`a child in a ${isolate} may do no more than its parent`, async () => {
    const system = createSystem(), diary = await Deno.makeTempFile();
    system.failed.catch(() => {});
    const init = { children: ["a"], isolate, diary };
    const parent = system.spawn(PARENT, init, { id: "p", ...LIMITED });
    if (isolate === "worker") {
      const { error } = await failureOf(system, parent);
      assert.match(error.message, /granted no more than its parent, which a worker cannot limit/);
    } else {
      const [child] = await system.ask(parent, { type: "Refs" });
      const failure = failureOf(system, child!);
      // It writes into a file when it stops.
      await system.stop(parent);
      assert.match((await failure).error.message, /Requires (read|write) access/);
    }
    await system.stop();
    await Deno.remove(diary);
  });
}

Deno.test("the imports of a process mean what they mean in the program that starts it", () =>
  inFolder(async (folder) => {
    const runtime = new URL("../../../actors/runtime/", import.meta.url);
    const { imports } = JSON.parse(await Deno.readTextFile(join(ROOT, "deno.json")));
    const files = {
      "deno.json": JSON.stringify({
        imports: { ...imports, "lucky": "./src/lucky.ts" },
        nodeModulesDir: "none",
      }),
      "src/lucky.ts": "export const LUCKY = 7;",
      "src/main.ts": `import { LUCKY } from "lucky";
        import { createSystem } from "${runtime}mod.ts";
        export const lucky = (ctx) => ({ Read() { ctx.reply(LUCKY); } });
        if (import.meta.main) {
          const system = createSystem();
          const spec = { module: import.meta.url, export: "lucky" };
          const ref = system.spawn(spec, undefined, { id: "lucky", isolate: "process" });
          console.log(await system.ask(ref, { type: "Read" }));
          await system.stop();
        }`,
    };
    await Deno.mkdir(join(folder, "src"));
    for (const [name, text] of Object.entries(files)) {
      await Deno.writeTextFile(join(folder, name), text);
    }
    // Not all permissions: the process gets those that there are.
    const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "--no-lock", ...NEEDED, join(folder, "src/main.ts")],
    }).output();
    assert.ok(success, decode(stderr));
    assert.equal(decode(stdout), "7\n");
  }));

/** What the program prints, telemetry included if it is on; it ends once all of `wanted` came. */
async function telemetry(env: Record<string, string>, wanted: readonly string[]): Promise<string> {
  const program = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", join(import.meta.dirname!, "program.ts"), "telemetry"],
    env: { NO_COLOR: "1", ...env },
    ...{ stdin: "piped", stdout: "piped", stderr: "piped" },
  }).spawn();
  let text = "", isOpen = true;
  const read = async (stream: ReadableStream<Uint8Array>) => {
    for await (const part of stream.pipeThrough(new TextDecoderStream())) {
      text += part;
      if (!isOpen || !wanted.every((one) => text.includes(one))) continue;
      isOpen = false;
      await program.stdin.close();
    }
  };
  await Promise.all([read(program.stdout), read(program.stderr)]);
  const { success } = await program.status;
  assert.ok(success, text);
  return text;
}

Deno.test("each step is a span, and its time and the mailboxes are metrics, in every isolate", async () => {
  const on = {
    OTEL_DENO: "true",
    OTEL_EXPORTER_OTLP_PROTOCOL: "console",
    OTEL_METRIC_EXPORT_INTERVAL: "200",
  };
  const places = [["server-local", 0], ["server-worker", 1]] as const;
  const text = await telemetry(on, [
    "METRIC troupe.mailbox.depth (Gauge, unit={message})",
    ...places.flatMap(([actor, isolate]) => [
      `{troupe.actor=${actor}, troupe.isolate=${isolate}} value=0`,
      `{troupe.actor=${actor}, troupe.isolate=${isolate}, troupe.message=Double} count=1`,
    ]),
  ]);
  for (const [actor, isolate] of places) {
    const attributes =
      `troupe.actor: ${actor}\\n  troupe.isolate: ${isolate}\\n  troupe.from: system`;
    assert.match(text, new RegExp(`SPAN Double .*\\n  scope: troupe\\n  ${attributes}`));
  }
  assert.match(text, /SPAN Throw [^]*? {2}troupe\.doing: 2F0, step 3/);
});

Deno.test("nothing is exported when telemetry is off", async () => {
  assert.equal(await telemetry({ OTEL_DENO: "false" }, ["handled"]), "handled\n");
});
