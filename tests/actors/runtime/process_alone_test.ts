/** Leftovers of processes and frames: folders for temporary files, and memory. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createSystem } from "../../../actors/transports/system.ts";
import { decodeFrame, encodeFrame } from "../../../actors/transports/codec.ts";
import { PROCESS_TRANSPORT } from "../../../actors/transports/process.ts";
import { tidyRendezvousFolders } from "../../../actors/transports/rendezvous.ts";
import { atDepth } from "../../depth.ts";
import { Running } from "../../console/running.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { ROGUE } from "./players.ts";

const isolate = "process";

/** Runs a test where temporary directories are made in another one, which must be empty after. */
async function withTemp(test: (folder: string) => Promise<void> | void): Promise<void> {
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

/** A program that is killed with all its processes, so that it leaves its folder. */
async function killed(): Promise<void> {
  const path = fileURLToPath(new URL("./program.ts", import.meta.url));
  const program = new Running(["run", "-A", path, "orphan"]);
  await program.printed("stdout", /\]/);
  program.interrupt("group", "SIGKILL");
  await program.end(HANG_LIMIT_MS);
}

Deno.test("process: what a program leaves that is killed with all its processes, the next removes", () =>
  withTemp(async (folder) => {
    const folders = () => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
    await using system = createSystem();
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue", isolate });
    await system.ask(rogue, { type: "Pid" });
    const [living] = folders(), other = (name: string) => join(folder, name);
    // No other user can look in.
    assert.equal(Deno.statSync(other(living!)).mode! & 0o777, 0o700);
    // Other folders are left unchanged.
    const others = ["troupe-empty", "other"], kept = [living!, ...others].sort();
    for (const name of others) Deno.mkdirSync(other(name));
    Deno.writeTextFileSync(join(other("other"), "lock"), "");
    await killed();
    const [left] = folders().filter((name) => !kept.includes(name)), again = left + "-again";
    const remains = [...Deno.readDirSync(other(left!))].filter(({ isFile }) => isFile);
    for (const tidy of [PROCESS_TRANSPORT.check!, tidyRendezvousFolders]) {
      Deno.mkdirSync(other(again));
      for (const { name } of remains) Deno.writeTextFileSync(join(other(again), name), "");
      tidy();
      assert.deepEqual(folders(), kept);
    }
    for (const name of others) Deno.removeSync(other(name), { recursive: true });
    // It still works, and so do the isolates that it opens next.
    const another = system.spawn(ROGUE, undefined, { id: "another", isolate });
    await system.ask(another, { type: "Pid" });
  }));

for (const [what, name] of [["missing", "missing"], ["too long", "x".repeat(90)]] as const) {
  Deno.test(`process: a folder for temporary files that is ${what} is refused in one sentence`, () =>
    withTemp((folder) => {
      const path = join(folder, name);
      if (what === "too long") Deno.mkdirSync(path);
      Deno.env.set("TMPDIR", path);
      assert.throws(PROCESS_TRANSPORT.check!, {
        name: "RangeError",
        message: /^Cannot start a process: TMPDIR must be a folder .*, received [^\n]+$/,
      });
      if (what === "too long") Deno.removeSync(path); // which fails if anything is in it
    }));
}

Deno.test({
  name: "process: a program that lacks a permission is refused immediately, and leaves nothing",
  permissions: { read: true, write: true, run: true, env: true, net: false },
  fn: () =>
    withTemp(async () => {
      await using system = createSystem();
      assert.throws(() => system.spawn(ROGUE, undefined, { id: "rogue", isolate }), {
        name: "NotCapable",
      });
    }),
});

Deno.test("many frames leave no memory behind", () => {
  const message = { type: "Activation", to: { id: "worker-1", isolate: 2 }, microBatch: 3 };
  const send = (value: unknown, transfer: ArrayBuffer[] = []) => {
    const { body, buffers } = encodeFrame(value, transfer);
    decodeFrame(body, buffers.map(({ buffer }) => buffer));
  };
  const count = atDepth(5000, 20_000);
  // A leak grows every time; a heap that settles does not.
  const grown = Array.from({ length: 5 }, () => {
    const before = Deno.memoryUsage().rss;
    for (let n = 0; n < count; n++) {
      const tensor = new Float32Array(16);
      send({ ...message, tensor }, [tensor.buffer]);
      send({ ...message, at: new Date(n) });
    }
    return (Deno.memoryUsage().rss - before) / count;
  });
  assert.ok(Math.min(...grown) < 1000, `grown by ${grown} bytes a frame`);
});
