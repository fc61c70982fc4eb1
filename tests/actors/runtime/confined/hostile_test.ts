/**
 * A hostile package: each of its attacks is stopped or contained, is told of, and the program goes on.
 */

import assert from "node:assert/strict";
import {
  type Ask,
  AskTimeoutError,
  type Down,
  type PackageSpec,
  type SpawnOptions,
  type System,
} from "../../../../actors/mod.ts";
import { withSystem } from "../harness.ts";

type Hostile = { type: "Attack"; name: string } & Ask<string>;

const HOSTILE: PackageSpec<undefined, Hostile> = {
  from: import.meta.resolve("./fixtures/hostile.ts"),
};

/** What has come of an attack. */
interface Outcome {
  /** What the actor says. */
  readonly said?: string;
  /** How it has ended. */
  readonly ended?: string;
  /** What it was denied. */
  readonly denied: readonly string[];
}

/** Lets a hostile actor attack. */
async function attack(
  system: System,
  name: string,
  options: Partial<SpawnOptions> = {},
): Promise<Outcome> {
  const denied: string[] = [];
  using _ = system.subscribe((event) => {
    if (event.type === "denied") denied.push(`${event.actor}: ${event.what} ${event.on}`);
  });
  const hostile = system.spawn(HOSTILE, undefined, { id: "hostile", ...options });
  const down = new Promise<Down>((resolve) => system.watch(hostile, resolve));
  const asked = system.ask(hostile, { type: "Attack", name }).catch((error) => {
    assert.ok(!(error instanceof AskTimeoutError), error);
  });
  const said = await asked;
  if (said !== undefined) {
    await system.stop(hostile);
    const { reason } = await down;
    assert.equal(reason, "stopped");
  }
  const { reason } = await down;
  return {
    denied,
    ...said !== undefined && { said },
    ...reason !== "stopped" && { ended: reason.error.message },
  };
}

/** A test of an attack that the actor survives. */
function refused(name: string, says: RegExp, denied: readonly string[], options = {}): void {
  Deno.test(`an actor that would ${name} is told that it may not, and so is the program`, () =>
    withSystem({}, async (system) => {
      const outcome = await attack(system, name, options);
      assert.match(outcome.said ?? outcome.ended!, says);
      assert.deepEqual(outcome.denied, denied.map((what) => `hostile: ${what}`));
    }));
}

refused("read a file", /NotCapable: Requires read access/, ["read /etc/passwd"]);
refused("write a file", /NotCapable: Requires write access/, ["write /tmp/hostile"]);
refused("open a socket", /NotCapable: Requires net access/, ["net 127.0.0.1:9"]);
refused("listen", /NotCapable: Requires net access/, ["net 0.0.0.0:0"]);
refused("read the environment", /NotCapable: Requires env access/, ["env "]);
refused("read a variable by node", /NotCapable|nothing/, ["env SECRET"]);
refused("ask for the host", /NotCapable: Requires sys access/, ["sys hostname"]);
// Deno does not note who would run what.
refused("run a program", /NotCapable: Requires run access/, []);
refused("kill the program", /NotCapable: Requires run access/, []);
refused("open a library", /NotCapable: Requires ffi access/, [
  "ffi /lib/x86_64-linux-gnu/libc.so.6",
]);
refused("import a cached package", /TypeError: The lockfile is out of date/, []);
refused("import a package that nobody has", /--cached-only is specified/, []);
refused("import a remote module", /Requires import access|--cached-only/, [
  "import example.com:443",
]);
refused("import a file as text", /Requires read access to "\/etc\/passwd"/, ["read /etc/passwd"]);
refused("import another file", /Requires read access/, [
  `read ${new URL("./fixtures/unlisted.ts", import.meta.url).pathname}`,
]);

/** A test of an attack that the process does not survive. */
function ended(name: string, how: RegExp, options: Partial<SpawnOptions> = {}): void {
  Deno.test(`an actor that would ${name} is ended, and the reason is told`, () =>
    withSystem({}, async (system) => {
      const outcome = await attack(system, name, options);
      assert.match(outcome.ended ?? assert.fail(outcome.said), how);
      const again = system.spawn(HOSTILE, undefined, { id: "again" });
      assert.equal(await system.ask(again, { type: "Attack", name: "work" }), "sibling");
    }));
}

Deno.test("what an actor keeps in localStorage, no other finds", () =>
  withSystem({}, async (system) => {
    for (const id of ["first", "second"]) {
      const hostile = system.spawn(HOSTILE, undefined, { id });
      const name = "keep notes for others";
      assert.equal(await system.ask(hostile, { type: "Attack", name }), "null");
      await system.stop(hostile);
    }
  }));

const STEP = { stepLimitMs: 300 }, MEMORY = { memoryLimitMb: 160 };

ended("loop", /has ended: one step must take at most 300 ms$/, STEP);
ended("loop in promises", /has ended: one step must take at most 300 ms$/, STEP);
ended("wait for ever", /has ended: one step must take at most 300 ms$/, STEP);
ended(
  "fill the heap",
  /killed by SIG(TRAP|ABRT|ILL), as when out of memory|must hold at most/,
  MEMORY,
);
ended("fill buffers", /it must hold at most 160 MiB of memory, and held \d+$/, MEMORY);
ended("fill buffers without a turn", /it must hold at most 160 MiB of memory, and held/, MEMORY);
ended("fill the memory of WebAssembly", /it must hold at most 160 MiB of memory/, MEMORY);
ended("spawn workers", /it must hold at most 160 MiB of memory/, MEMORY);
ended("exit", /exited with code 7$/);
ended("write raw bytes", /it broke the protocol: Cannot receive a frame: its parts must be of at /);
ended("claim a frame of a terabyte", /it broke the protocol: Cannot receive a frame/);
ended("claim a million buffers", /it broke the protocol: Cannot receive a frame/);
ended("claim less than nothing", /it broke the protocol: Cannot receive a frame/);
ended("send what is no frame", /it broke the protocol: Cannot read a value/);
ended("flood the output", /it broke the protocol/);
ended("close the output", /one step must take at most 300 ms$/, STEP);
ended("ask without end", /it must not ask for permissions without end/);
ended("fill the disk", /it must not keep data in caches$/);
ended("poison what the runtime uses", /./, STEP);
