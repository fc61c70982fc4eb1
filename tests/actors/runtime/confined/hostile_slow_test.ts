/** A hostile package: each of its attacks is stopped for its own reason, and the program goes on. */

import assert from "node:assert/strict";
import { join } from "node:path";
import type { PackageSpec, SpawnOptions, System } from "../../../../actors/mod.ts";
import { framePieces } from "../../../../actors/runtime/transports/stream/frame_head.ts";
import { receiveFrames } from "../../../../actors/runtime/transports/stream/stream.ts";
import { ROOT } from "../../../repository.ts";
import { HEARD, LISTENER } from "../guard/impostor.ts";
import { downOf, failureOf, until, withSystem } from "../harness.ts";
import { SERVER } from "../players.ts";
import type { Hostile } from "./fixtures/hostile.ts";

const HOSTILE: PackageSpec<undefined, Hostile> = {
  from: import.meta.resolve("./fixtures/hostile.ts"),
};

/** Gives a test a system, and the denials of its actors as they are reported. */
function withDenials(test: (system: System, denied: string[]) => Promise<void>): Promise<void> {
  return withSystem({}, async (system) => {
    const denied: string[] = [];
    using _ = system.subscribe((event) => {
      if (event.type === "denied") denied.push(`${event.actor}: ${event.what} ${event.on}`);
    });
    await test(system, denied);
  });
}

/** Attacks that their process survives: what each is answered, and the denial that is reported. */
const REFUSED: Readonly<Record<string, readonly [answer: RegExp, denied?: string]>> = {
  "read a file": [/^NotCapable: Requires read access/, "read /etc/passwd"],
  "write a file": [/^NotCapable: Requires write access/, "write /tmp/hostile"],
  "open a socket": [/^NotCapable: Requires net access/, "net 127.0.0.1:9"],
  "listen": [/^NotCapable: Requires net access/, "net 0.0.0.0:0"],
  "read the environment": [/^NotCapable: Requires env access/, "env "],
  "read a variable by node": [/^NotCapable: Requires env access to "SECRET"/, "env SECRET"],
  "ask for the host": [/^NotCapable: Requires sys access/, "sys hostname"],
  // Deno does not note attempts to run programs.
  "run a program": [/^NotCapable: Requires run access to "\/bin\/true"/],
  "kill the program": [/^NotCapable: Requires run access,/],
  "open a library": [/^NotCapable: Requires ffi access/, "ffi /lib/x86_64-linux-gnu/libc.so.6"],
  "import an unknown package": [/^TypeError: .* not found in cache: "no-such-pack.*", --cach/s],
  "import a remote module": [/^TypeError: Requires import access/, "import example.com:443"],
  "import a file as text": [/^TypeError: Requires read access/, "read /etc/group"],
  "import another file": [/^TypeError: Requires read access/, `read ${join(ROOT, "cli.ts")}`],
  // With a lock that is out of date, nothing can be imported any more.
  "import a cached package": [/^TypeError: The lockfile is out of date/],
};

Deno.test("attacks beyond the permissions are refused one by one, and reported", () =>
  withDenials(async (system, denied) => {
    const hostile = system.spawn(HOSTILE, undefined, { id: "hostile" });
    const down = downOf(system, hostile);
    for (const [name, [answer, denial]] of Object.entries(REFUSED)) {
      denied.length = 0;
      assert.match(await system.ask(hostile, { type: "Attack", name }), answer);
      assert.deepEqual(denied, denial === undefined ? [] : [`hostile: ${denial}`], name);
    }
    await system.stop(hostile);
    assert.equal((await down).reason, "stopped");
  }));

/** Registers a test of attacks that end their process, each with its reason; a fresh actor works. */
function ended(
  title: string,
  attacks: Readonly<Record<string, RegExp>>,
  options: Partial<SpawnOptions> = {},
): void {
  Deno.test(title, () =>
    withSystem({}, async (system) => {
      for (const [name, reason] of Object.entries(attacks)) {
        const hostile = system.spawn(HOSTILE, undefined, { id: "hostile", ...options });
        system.ask(hostile, { type: "Attack", name }, { timeoutMs: Infinity }).catch(() => {});
        const { error: { message }, kind } = await failureOf(system, hostile);
        assert.equal(kind, "exit", name);
        assert.ok(message.startsWith('the process of "hostile" has ended: '), message);
        assert.match(message, reason, name);
      }
      const again = system.spawn(HOSTILE, undefined, { id: "again" });
      assert.equal(await system.ask(again, { type: "Attack", name: "work" }), "worked");
    }));
}

const STEP = /: one step must take at most 300 ms$/;

ended("a process whose step takes too long is ended", {
  "loop": STEP,
  "wait for ever": STEP,
}, { stepLimitMs: 300 });

const HEAP = /killed by SIG(TRAP|ABRT|ILL), as when out of memory$|it must hold at most 160 /;

ended("a process that holds too much memory of any kind is ended", {
  "fill the heap": HEAP,
  "hold more than a little": /: it must hold at most 160 MiB of memory, and held \d{3,}$/,
}, { memoryLimitMb: 160, stepLimitMs: 5000 });

const BROKEN = "it broke the protocol: Cannot";

ended("a process that breaks the protocol, floods the disk or breaks its runtime is ended", {
  "exit": /: exited with code 7$/,
  "write raw bytes": new RegExp(`${BROKEN} receive a frame: its parts must be of at most .* NaN$`),
  "send what is no frame": new RegExp(`${BROKEN} read a value: .* received 7 bytes too many$`),
  "flood the output": new RegExp(`${BROKEN} read a value: .* received an early end$`),
  "ask without end": /: it must not ask for permissions without end; it was denied read "/,
  "fill the disk": /: it must not keep data in caches$/,
  "poison what the runtime uses": /: exited with code 1$/,
}, { stepLimitMs: 60_000 });

Deno.test("a frame that claims more than its sender may is refused before it is read", async () => {
  for (
    const [numbers, received] of [
      [[2 ** 40, 0], 2 ** 40],
      [[8, 2 ** 40], 2 ** 43 + 8],
      [[-8, 0], NaN],
    ] as const
  ) {
    const read = (into: Uint8Array) => {
      into.set(new Uint8Array(Float64Array.from(numbers).buffer));
      return Promise.resolve(16);
    };
    const message =
      `Cannot receive a frame: its parts must be of at most 1024 bytes, received ${received}`;
    await assert.rejects(receiveFrames({ read }, () => assert.fail(), 1024), { message });
  }
});

Deno.test("notes that an actor keeps in localStorage are gone for the next one", () =>
  withSystem({}, async (system) => {
    for (const id of ["first", "second"]) {
      const hostile = system.spawn(HOSTILE, undefined, { id });
      const name = "keep notes for others";
      assert.equal(await system.ask(hostile, { type: "Attack", name }), "null");
      await system.stop(hostile);
    }
  }));

Deno.test("a made-up address is denied, and a process that makes up a sender ends", () =>
  withDenials(async (system, denied) => {
    const victim = system.spawn(LISTENER, undefined, { id: "victim" });
    const forger = system.spawn(HOSTILE, undefined, { id: "forger" });
    const failure = failureOf(system, forger);
    // An address that was sent as text is no address that was given.
    system.send(forger, { type: "Send", to: JSON.stringify(victim) });
    await until(() => denied.length > 0);
    assert.deepEqual(denied, ["forger: message victim"]);
    const [letter] = system.deadLetters;
    assert.deepEqual(letter, { from: "forger", to: "victim", type: "Note", reason: "denied" });
    const frame = { kind: "message", to: victim, from: victim, lane: "data", message: letter };
    const [head, body] = framePieces(frame, []);
    system.send(forger, { type: "Print", bytes: new Uint8Array([...head!, ...body!]) });
    assert.match(
      (await failure).error.message,
      /^the process of "forger" has ended: the actor of a package must not send a message in the na/,
    );
    assert.deepEqual(HEARD.victim, []);
  }));

Deno.test("a message that an actor of the program does not handle is reported, and that actor goes on", () =>
  withDenials(async (system, denied) => {
    const friend = system.spawn(SERVER, undefined, { id: "friend" });
    const hostile = system.spawn(HOSTILE, undefined, { id: "hostile" });
    system.send(hostile, { type: "Send", to: "", friend });
    await until(() => denied.length > 0);
    assert.deepEqual(denied, ["hostile: message friend"]);
    const letter = { from: "hostile", to: "friend", type: "Note", reason: "malformed" };
    assert.deepEqual(system.deadLetters, [letter]);
    assert.equal(await system.ask(friend, { type: "Double", n: 2 }), 4);
  }));

Deno.test("an actor that is stopped while its modules are fetched never begins", () =>
  withSystem({ stopGraceMs: 30_000 }, async (system) => {
    const hostile = system.spawn(HOSTILE, undefined, { id: "hostile" });
    const down = downOf(system, hostile);
    await system.stop(hostile);
    assert.equal((await down).reason, "stopped");
  }));
