/** Programs with processes: their permissions, imports and exported telemetry. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { atDepth } from "../../depth.ts";
import { ROOT, runProgram } from "../../console/command.ts";
import { writeFiles } from "../../package/packages.ts";
import { inFolder } from "../../in_folder.ts";

/** A program that has processes. */
const PROGRAM = fileURLToPath(new URL("./program.ts", import.meta.url));

const NEEDED = ["--allow-run", "--allow-read", "--allow-write", "--allow-net"];

/** Runs a program with these permissions. */
const run = (flags: readonly string[], ...args: readonly string[]) =>
  runProgram(Deno.execPath(), ["run", "--no-prompt", ...flags, ...args]);

for (
  const flags of atDepth([[...NEEDED, "--allow-env", "--deny-sys"]], [
    ...[["-A"], NEEDED, ["-A", "--deny-env", "--deny-sys", "--deny-import"], ["-A", "--deny-ffi"]],
    [...NEEDED, "--allow-env", "--allow-sys"],
    [...NEEDED, "--allow-ffi", "--allow-import"],
  ])
) {
  Deno.test(`a process has the permissions of its program: ${flags.join(" ")}`, async () => {
    const { stdout, stderr } = await run(flags, PROGRAM, "permissions");
    const [own, child] = JSON.parse(stdout || assert.fail(stderr));
    assert.deepEqual(child, own);
  });
}

const REFUSED: readonly (readonly [readonly string[], string])[] = [
  [
    [...NEEDED.slice(1), `--allow-run=${Deno.execPath()}`, "--deny-net"],
    // A program that may start itself must not write over itself.
    "run not granted as a whole, write denied in part, net denied",
  ],
  [["-A", "--deny-read=LICENSE"], "read denied in part"],
  [["-A", "--ignore-read=LICENSE"], "read denied in part"],
  [["-A", "--deny-write=LICENSE"], "write denied in part"],
  [["-A", "--deny-net=192.0.2.1"], "net denied in part"],
  [["-A", "--deny-run=ls"], "run denied in part"],
  [["-A", "--deny-sys=hostname"], "sys denied in part"],
  [["-A", "--deny-ffi=/lib"], "ffi denied in part"],
  [["-A", "--deny-import=example.com"], "import denied in part"],
  [[...NEEDED.filter((flag) => flag !== "--allow-read"), "--allow-read=."], "read not granted"],
];

for (const [flags, received] of atDepth(REFUSED.slice(0, 1), REFUSED)) {
  Deno.test(`a program with ${flags.join(" ")} gets no process`, async () => {
    const { stdout, stderr } = await run(flags, PROGRAM, "permissions");
    assert.equal(stdout, "");
    assert.match(stderr, /NotCapable: Cannot start a process: it gets the permissions of this /);
    assert.ok(stderr.includes(`received ${received}`), stderr);
  });
}

Deno.test("a run whose processes need read permissions that it lacks is refused before it starts", () =>
  inFolder(async (folder) => {
    const out = join(folder, "out");
    const train = ["train", "--device", "reference", "--out", out, "--isolation", "process"];
    const { code, stdout, stderr } = await run(["-A", "--deny-read=LICENSE"], "cli.ts", ...train);
    assert.deepEqual({ code, stdout }, { code: 2, stdout: "" });
    assert.match(stderr, /^Cannot start a process: [^\n]+, received read denied in part\n$/);
    await assert.rejects(Deno.stat(out), Deno.errors.NotFound);
  }));

Deno.test("the imports of a process resolve as in the program that starts it", () =>
  inFolder(async (folder) => {
    const runtime = new URL("../../../actors/runtime/", import.meta.url);
    const { imports } = JSON.parse(await Deno.readTextFile(join(ROOT, "deno.json")));
    const config = { imports: { ...imports, lucky: "./lucky.ts" }, nodeModulesDir: "none" };
    const files = {
      "deno.json": JSON.stringify(config),
      "lucky.ts": "export const LUCKY = 7;",
      "main.ts": `import { LUCKY } from "lucky";
        import { createSystem } from "${runtime}../transports/system.ts";
        export const lucky = (ctx) => ({ Read() { ctx.reply(LUCKY); } });
        if (import.meta.main) {
          const system = createSystem();
          const spec = { module: import.meta.url, export: "lucky" };
          const ref = system.spawn(spec, undefined, { id: "lucky", isolate: "process" });
          console.log(await system.ask(ref, { type: "Read" }));
          await system.stop();
        }`,
    };
    await writeFiles(folder, files);
    // Not all permissions: the process gets the granted ones.
    const { stdout, stderr } = await run([...NEEDED, "--no-lock"], join(folder, "main.ts"));
    assert.equal(stdout, "7\n", stderr);
  }));

Deno.test("each step is a span, and its time and the mailboxes are metrics, in every isolate", async () => {
  const program = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", PROGRAM, "telemetry"],
    env: {
      NO_COLOR: "1",
      OTEL_DENO: "true",
      OTEL_EXPORTER_OTLP_PROTOCOL: "console",
      OTEL_METRIC_EXPORT_INTERVAL: "200",
    },
    ...{ stdin: "piped", stdout: "piped", stderr: "piped" },
  }).spawn();
  const places = [["server-local", 0], ["server-worker", 1]] as const;
  const metrics = [
    "METRIC troupe.mailbox.depth (Gauge, unit={message})",
    ...places.flatMap(([actor, isolate]) => [
      `{troupe.actor=${actor}, troupe.isolate=${isolate}} value=0`,
      `{troupe.actor=${actor}, troupe.isolate=${isolate}, troupe.message=Double} count=1`,
    ]),
  ];
  let text = "", isOpen = true;
  const read = async (stream: ReadableStream<Uint8Array>) => {
    for await (const part of stream.pipeThrough(new TextDecoderStream())) {
      text += part;
      if (!isOpen || !metrics.every((one) => text.includes(one))) continue;
      isOpen = false;
      // The program ends with its input.
      await program.stdin.close();
    }
  };
  await Promise.all([read(program.stdout), read(program.stderr)]);
  assert.ok((await program.status).success, text);
  for (const [actor, isolate] of places) {
    const attributes =
      `troupe.actor: ${actor}\\n  troupe.isolate: ${isolate}\\n  troupe.from: system`;
    assert.match(text, new RegExp(`SPAN Double .*\\n  scope: troupe\\n  ${attributes}`));
  }
  assert.match(text, /SPAN Throw [^]*? {2}troupe\.doing: 2F0, step 3/);
});
