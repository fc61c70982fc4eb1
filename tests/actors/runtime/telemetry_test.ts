/** OpenTelemetry, as Deno exports it from a program of its own. */

import assert from "node:assert/strict";

const PROGRAM = new URL("telemetry_program.ts", import.meta.url).pathname;

/** What the program prints, telemetry included if it is on; it ends once all of `wanted` came. */
async function run(env: Record<string, string>, wanted: readonly string[]): Promise<string> {
  const program = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", PROGRAM],
    env: { NO_COLOR: "1", ...env },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
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
  const text = await run(on, [
    "METRIC troupe.mailbox.depth (Gauge, unit={message})",
    "{troupe.actor=server-local, troupe.isolate=0} value=0",
    "{troupe.actor=server-worker, troupe.isolate=1} value=0",
    "{troupe.actor=server-local, troupe.isolate=0, troupe.message=Double} count=1",
    "{troupe.actor=server-worker, troupe.isolate=1, troupe.message=Double} count=1",
  ]);
  for (const [actor, isolate] of [["server-local", 0], ["server-worker", 1]] as const) {
    const attributes =
      `troupe.actor: ${actor}\\n  troupe.isolate: ${isolate}\\n  troupe.from: system`;
    assert.match(text, new RegExp(`SPAN Double .*\\n  scope: troupe\\n  ${attributes}`));
  }
  assert.match(text, /SPAN Throw [^]*? {2}troupe\.doing: 2F0, step 3/);
});

Deno.test("nothing of it is there when telemetry is off", async () => {
  assert.equal(await run({ OTEL_DENO: "false" }, ["handled"]), "handled\n");
});
