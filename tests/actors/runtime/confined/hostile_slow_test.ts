/** A hostile package: each of its attacks is stopped for its own reason, and the program goes on. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Ask, Down, PackageSpec, SpawnOptions, System } from "../../../../actors/mod.ts";
import { framePieces } from "../../../../actors/runtime/transports/stream/frame_head.ts";
import { inFolder } from "../../../in_folder.ts";
import { ROOT } from "../../../repository.ts";
import { HEARD, LISTENER } from "../guard/impostor.ts";
import { downOf, failureOf, until, withSystem } from "../harness.ts";

type Hostile = { type: "Attack"; name: string } & Ask<string>;

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

/** An attack that its process survives: what it is answered, and the denial that is reported. */
type Refused = readonly [attack: string, answer: RegExp, denied?: string];

const NPM =
  /^TypeError: Failed loading .* not found in cache: "no-such-package-of-troupe", --cach/s;

const REFUSED: readonly Refused[] = [
  ["read a file", /^NotCapable: Requires read access/, "read /etc/passwd"],
  ["write a file", /^NotCapable: Requires write access/, "write /tmp/hostile"],
  ["open a socket", /^NotCapable: Requires net access/, "net 127.0.0.1:9"],
  ["listen", /^NotCapable: Requires net access/, "net 0.0.0.0:0"],
  ["read the environment", /^NotCapable: Requires env access/, "env "],
  ["read a variable by node", /^NotCapable: Requires env access to "SECRET"/, "env SECRET"],
  ["ask for the host", /^NotCapable: Requires sys access/, "sys hostname"],
  // Deno does not note attempts to run programs.
  ["run a program", /^NotCapable: Requires run access to "\/bin\/true"/],
  ["kill the program", /^NotCapable: Requires run access,/],
  ["open a library", /^NotCapable: Requires ffi access/, "ffi /lib/x86_64-linux-gnu/libc.so.6"],
  ["import an unknown package", NPM],
  [
    "import a remote module",
    /^TypeError: Requires import access to "example.com:443"/,
    "import example.com:443",
  ],
  ["import a file as text", /^TypeError: Requires read access/, "read /etc/group"],
  ["import another file", /^TypeError: Requires read access/, `read ${join(ROOT, "cli.ts")}`],
  // With a lock that is out of date, nothing can be imported any more.
  ["import a cached package", /^TypeError: The lockfile is out of date/],
];

Deno.test("attacks beyond the permissions are refused one by one, and reported", () =>
  withDenials(async (system, denied) => {
    const hostile = system.spawn(HOSTILE, undefined, { id: "hostile" });
    const down = downOf(system, hostile);
    for (const [name, answer, denial] of REFUSED) {
      denied.length = 0;
      assert.match(await system.ask(hostile, { type: "Attack", name }), answer);
      assert.deepEqual(denied, denial === undefined ? [] : [`hostile: ${denial}`], name);
    }
    await system.stop(hostile);
    assert.equal((await down).reason, "stopped");
  }));

/** Lets a fresh hostile actor attack, and expects its end: returns the reason. */
async function endOf(system: System, name: string, options: Partial<SpawnOptions>) {
  const hostile = system.spawn(HOSTILE, undefined, { id: "hostile", ...options });
  const failure = failureOf(system, hostile);
  system.ask(hostile, { type: "Attack", name }, { timeoutMs: Infinity })
    .then((answer) => assert.fail(`${name}: ${answer}`), () => {});
  const { error, kind } = await failure;
  assert.equal(kind, "exit", name);
  return error.message;
}

/** Attacks that end their process, and the reason of each. */
type Ended = Readonly<Record<string, RegExp>>;

/** Registers a test of attacks, after which a fresh actor of the package still works. */
function ended(title: string, attacks: Ended, options: Partial<SpawnOptions> = {}): void {
  Deno.test(title, () =>
    withSystem({}, async (system) => {
      for (const [name, reason] of Object.entries(attacks)) {
        const message = await endOf(system, name, options);
        assert.ok(message.startsWith('the process of "hostile" has ended: '), message);
        assert.match(message, reason, name);
      }
      const again = system.spawn(HOSTILE, undefined, { id: "again" });
      assert.equal(await system.ask(again, { type: "Attack", name: "work" }), "counter");
    }));
}

const STEP = /: one step must take at most 300 ms$/;

ended("a process whose step takes too long is ended", {
  "loop": STEP,
  "loop in promises": STEP,
  "wait for ever": STEP,
  "close the output": STEP,
}, { stepLimitMs: 300 });

const MEMORY = /: it must hold at most 160 MiB of memory, and held \d{3,}$/;

ended("a process that holds too much memory of any kind is ended", {
  "fill the heap": /killed by SIG(TRAP|ABRT|ILL), as when out of memory$|it must hold at most 160 /,
  "hold more than a little": MEMORY,
  "fill buffers": MEMORY,
  "fill the memory of WebAssembly": MEMORY,
  "spawn workers": MEMORY,
}, { memoryLimitMb: 160, stepLimitMs: 5000 });

const BROKEN = "it broke the protocol: Cannot";
const PARTS = `${BROKEN} receive a frame: its parts must be of at most 536870912 bytes, received`;
const VALUE = `${BROKEN} read a value: its bytes must be whole, received`;

ended("a process that breaks the protocol, floods the disk or breaks its runtime is ended", {
  "exit": /: exited with code 7$/,
  "write raw bytes": new RegExp(`: ${PARTS} NaN$`),
  "claim a frame of a terabyte": new RegExp(`: ${PARTS} ${2 ** 40}$`),
  "claim endless buffers": new RegExp(`: ${PARTS} ${2 ** 43 + 8}$`),
  "claim less than nothing": new RegExp(`: ${PARTS} NaN$`),
  "send what is no frame": new RegExp(`: ${VALUE} 7 bytes too many$`),
  "flood the output": new RegExp(`: ${VALUE} an early end$`),
  "ask without end": /: it must not ask for permissions without end; it was denied read "/,
  "fill the disk": /: it must not keep data in caches$/,
  "poison what the runtime uses": /: exited with code 1$/,
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

/** A package that makes up addresses, and frames. */
const FORGER = `export const actor = {
  name: "forger", protocol: 1, messages: { Send: {}, Say: {} },
  create: (ctx) => ({
    Send: ({ to }) => ctx.send(JSON.parse(to), { type: "Note" }),
    Say: ({ bytes }) => void Deno.stdout.writeSync(bytes),
  }),
};`;

type Forger = { type: "Send"; to: string } | { type: "Say"; bytes: Uint8Array };

Deno.test("a made-up address is denied, and a process that makes up a sender ends", () =>
  inFolder((folder) =>
    withDenials(async (system, denied) => {
      await Deno.writeTextFile(join(folder, "forger.js"), FORGER);
      const spec: PackageSpec<undefined, Forger> = {
        from: pathToFileURL(join(folder, "forger.js")).href,
      };
      const victim = system.spawn(LISTENER, undefined, { id: "victim" });
      const forger = system.spawn(spec, undefined, { id: "forger" });
      const failure = failureOf(system, forger);
      // An address that was sent as text is no address that was given.
      system.send(forger, { type: "Send", to: JSON.stringify(victim) });
      await until(() => denied.length > 0);
      assert.deepEqual(denied, ["forger: message victim"]);
      const [letter] = system.deadLetters;
      assert.deepEqual(letter, { from: "forger", to: "victim", type: "Note", reason: "denied" });
      const frame = { kind: "message", to: victim, from: victim, lane: "data", message: letter };
      const [head, body] = framePieces(frame, []);
      system.send(forger, { type: "Say", bytes: new Uint8Array([...head!, ...body!]) });
      assert.match(
        (await failure).error.message,
        /^the process of "forger" has ended: the actor of a package must not send a message in the na/,
      );
      assert.deepEqual(HEARD.victim, []);
    })
  ));

Deno.test("an actor that is stopped while its modules are fetched never begins", () =>
  withSystem({}, async (system) => {
    const hostile = system.spawn(HOSTILE, undefined, { id: "hostile" });
    const down: Promise<Down> = downOf(system, hostile);
    await system.stop(hostile);
    assert.equal((await down).reason, "stopped");
    const next = system.spawn(HOSTILE, undefined, { id: "next" });
    assert.equal(await system.ask(next, { type: "Attack", name: "work" }), "counter");
  }));
