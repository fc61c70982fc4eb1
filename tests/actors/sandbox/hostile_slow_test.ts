/** A hostile package: each attack is stopped with its reason, and the program continues. */

import assert from "node:assert/strict";
import type { ActorRef } from "../../../actors/runtime/mod.ts";
import { packageActor, type SandboxOptions } from "../../../actors/sandbox/host.ts";
import { framePieces, receiveFrames } from "../../../actors/transports/stream.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { downOf, failureOf, withSystem } from "../runtime/harness.ts";
import type { Hostile } from "./fixtures/hostile.ts";

const FROM = import.meta.resolve("./fixtures/hostile.ts");

const hostileWith = (options: Partial<SandboxOptions> = {}) =>
  packageActor<undefined, Hostile>({ from: FROM, ...options });

/** Attacks that their process survives, and the answer to each. */
const REFUSED: Readonly<Record<string, RegExp>> = {
  "read a file": /^NotCapable: Requires read access/,
  "write a file": /^NotCapable: Requires write access/,
  "open a socket": /^NotCapable: Requires net access/,
  "listen": /^NotCapable: Requires net access/,
  "read the environment": /^NotCapable: Requires env access/,
  "read a variable by node": /^NotCapable: Requires env access to "SECRET"/,
  "ask for the host": /^NotCapable: Requires sys access/,
  "run a program": /^NotCapable: Requires run access to "\/bin\/true"/,
  "kill the program": /^NotCapable: Requires run access,/,
  "open a library": /^NotCapable: Requires ffi access/,
  "import an unknown package": /^TypeError: .* not found in cache: "no-such-pack.*", --cach/s,
  "import a remote module": /^TypeError: Requires import access/,
  "import a file as text": /^TypeError: Requires read access/,
  "import another file": /^TypeError: Requires read access/,
  "fill the disk": /^Error: Failed to create cache storage/,
  "keep notes for others": /^NotADirectory/,
  // With a lock that is out of date, nothing can be imported any more.
  "import a cached package": /^TypeError: The lockfile is out of date/,
};

Deno.test("attacks beyond the permissions are refused one by one", () =>
  withSystem({}, async (system) => {
    const hostile = system.spawn(hostileWith(), undefined, { id: "hostile" });
    const down = downOf(system, hostile);
    for (const [name, answer] of Object.entries(REFUSED)) {
      assert.match(await system.ask(hostile, { type: "Attack", name }), answer, name);
    }
    await system.stop(hostile);
    assert.equal((await down).reason, "stopped");
  }));

/** Registers a test of attacks that end their process, each with its reason; a fresh actor works. */
function ended(
  title: string,
  attacks: Readonly<Record<string, RegExp>>,
  options: Partial<SandboxOptions> = {},
): void {
  Deno.test(title, () =>
    withSystem({}, async (system) => {
      for (const [name, reason] of Object.entries(attacks)) {
        const hostile = system.spawn(hostileWith(options), undefined, { id: "hostile" });
        system.ask(hostile, { type: "Attack", name }, { timeoutMs: Infinity }).catch(() => {});
        const failure = failureOf(system, hostile);
        // Some ends are noticed with the next message.
        const next = () => system.send(hostile, { type: "Attack", name: "work" });
        const again = setInterval(next, 100);
        const { error: { message }, kind } = await failure;
        clearInterval(again);
        assert.equal(kind, "throw", name);
        assert.ok(message.startsWith('the process of "hostile" has ended: '), message);
        assert.match(message, reason, name);
      }
      const again = system.spawn(hostileWith(), undefined, { id: "again" });
      assert.equal(await system.ask(again, { type: "Attack", name: "work" }), "worked");
    }));
}

const STEP = /: one step must take at most 300 ms$/;

const SLOW = { "loop": STEP, "wait for ever": STEP };
ended("a process whose step takes too long is ended", SLOW, { stepLimitMs: 300 });

const BROKEN = "it broke the protocol: Cannot";

ended("a process that breaks the protocol, or its runtime is ended", {
  "exit": /: exited with code 7$/,
  "leave a promise": /: exited with code 1$/,
  "write raw bytes": new RegExp(`${BROKEN} receive a frame: its parts must be of at most .* NaN$`),
  "send what is no frame": new RegExp(`${BROKEN} read a value: .* received 7 bytes too many$`),
  "send maps without number": new RegExp(
    `${BROKEN} read a value: it must have at most 2000000 obj`,
  ),
  "flood the output": new RegExp(`${BROKEN} read a value: .* received an early end$`),
  "poison what the runtime uses": /: exited with code 1$|: one step must take/,
}, { stepLimitMs: 5000 });

Deno.test("a frame that claims more than its sender may is refused before it is read", async () => {
  const receive = (...numbers: number[]) => {
    const read = (into: Uint8Array) => {
      into.set(new Uint8Array(Float64Array.from(numbers).buffer));
      return Promise.resolve(16);
    };
    return receiveFrames({ read }, () => assert.fail(), 1024);
  };
  await assertRefused("frames", [
    () => receive(2 ** 40, 0),
    () => receive(8, 1),
    () => receive(-8, 0),
  ]);
});

/** Notes the messages of hostile actors. */
const HEARD: unknown[] = [];

export const listener = () => ({ Note: (message: unknown) => void HEARD.push(message) });

const LISTENER = { module: import.meta.url, export: "listener" };

Deno.test("a package reaches the actors that it was given, and no others", () =>
  withSystem({}, async (system) => {
    const [friend, victim] = ["friend", "victim"].map((id) =>
      system.spawn(LISTENER, undefined as never, { id })
    ) as [ActorRef, ActorRef];
    const sends = { Note: {} }, forged = JSON.stringify(victim);
    const number = JSON.stringify({ "~ref": 2 });
    const ways = [[forged, ""], [number, ""], [friend, number], [friend, forged]] as const;
    for (const [to, of] of ways) {
      HEARD.length = 0;
      const hostile = system.spawn(hostileWith({ sends }), undefined, { id: "hostile" });
      const failure = failureOf(system, hostile);
      system.send(hostile, { type: "Send", to: friend, of: 1 });
      system.send(hostile, { type: "Send", to, of: of || undefined });
      const sentence =
        /^the sandbox broke its protocol: its (add|mess)|^Cannot send: it must be given the ad/;
      assert.match((await failure).error.message, sentence);
      assert.deepEqual(HEARD, [{ type: "Note", of: 1 }]);
    }
    const quiet = system.spawn(hostileWith(), undefined, { id: "quiet" });
    system.send(quiet, { type: "Send", to: friend });
    const { error } = await failureOf(system, quiet);
    const refusal = 'Cannot send "Note": its type must be one that "quiet" lists (none)';
    assert.equal(error.message, refusal);
  }));

Deno.test("a process that speaks without being asked is ended", () =>
  withSystem({}, async (system) => {
    system.failed.catch(() => {}); // it is the answer's failure
    const hostile = system.spawn(hostileWith(), undefined, { id: "hostile" });
    const turn = { calls: [], isOver: true, isDeferred: false, refusal: undefined };
    const [head, body] = framePieces(turn, []);
    system.send(hostile, { type: "Print", bytes: new Uint8Array([...head!, ...body!]) });
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const answer = system.ask(hostile, { type: "Attack", name: "work" });
    await assert.rejects(answer, /it broke the protocol: it must not speak unless it is asked$/);
  }));

Deno.test("an actor that is stopped while its modules are fetched never begins", () =>
  withSystem({ stopGraceMs: 30_000 }, async (system) => {
    const hostile = system.spawn(hostileWith(), undefined, { id: "hostile" });
    const down = downOf(system, hostile);
    await system.stop(hostile);
    assert.equal((await down).reason, "stopped");
  }));
