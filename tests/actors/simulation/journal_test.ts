/** Contents of a journal: digests, messages and steps; and refusals of its readers. */

import { digestOf } from "../../../actors/simulation/digest.ts";
import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import fc from "../../fast_check.ts";
import {
  random,
  ReplayError,
  replayInbox,
  replayJournal,
  type ReplayOptions,
  type Run,
  type Scenario,
  simulate,
  type World,
  writeJournal,
} from "../../../testing.ts";
import { decodePayload, encodePayload } from "../../../actors/simulation/journal.ts";
import {
  checksummed,
  journalOf,
  parseJournal,
  PLAYERS,
  realJournal,
  recordsOf,
  refusedLine,
  systemJournal,
} from "./forged.ts";
import type { System } from "../../../actors/mod.ts";
import { plain } from "../runtime/players.ts";
import { type Any, GUARD, playRing, playSum, SUM, sum } from "./players.ts";

Deno.test("equal values have equal digests, and almost no others do", () => {
  fc.assert(fc.property(fc.anything(), (value) => {
    assert.equal(digestOf(value), digestOf(structuredClone(value)));
  }));
  const digests = new Set<string>();
  for (let n = 0; n < 20_000; n++) digests.add(digestOf({ type: "Pass", microBatch: n }));
  assert.equal(digests.size, 20_000);
});

const LIKE_BUT_OTHER: readonly [unknown, unknown][] = [
  ...[[0, -0], [1, "1"], [true, 1], [NaN, null], [1n, 1], [true, false]] as [unknown, unknown][],
  ...[[null, undefined], ["ab", "ba"], [{}, []]] as [unknown, unknown][],
  [0.1, 0.1 + 2 ** -56],
  [["a", "b"], ["ab", ""]],
  [[1, [2]], [[1], 2]],
  [[[], 1], [[1]]],
  [{ a: 1, b: 2 }, { b: 2, a: 1 }],
  [new Uint8Array([1, 0]), new Uint8Array([1])],
  [new Uint8Array([1, 2, 3]), new Int8Array([1, 2, 3])],
  [new Float32Array([1, 2]), new Float32Array([2, 1])],
  // One bit each, the sign, in two places: a plain product loses them.
  [new Float32Array([1, -2, 3]), new Float32Array([-1, 2, 3])],
  [new Float32Array([1, 3, -2]), new Float32Array([-1, 3, 2])],
  [new Map([[1, 2], [3, 4]]), new Map([[3, 4], [1, 2]])],
  [new ArrayBuffer(4), new ArrayBuffer(8)],
  [new Error("a"), new TypeError("a")],
  [new Error("a"), new Error("b")],
  ["file:///here/a.ts", "file:///here/b.ts"],
  [{ id: "stage-1", isolate: 0, serial: 3 }, { id: "stage-2", isolate: 0, serial: 3 }],
];

/** An address counts by its id, a failure by its message, a file by its name. */
const ALIKE: readonly [unknown, unknown][] = [
  [{ id: "stage-1", isolate: 0, serial: 3 }, { id: "stage-1", isolate: 7, serial: 10 }],
  [{ name: "E", message: "m", stack: "at here" }, { name: "E", message: "m", stack: "at there" }],
  ["file:///here/a.ts", "file:///there/a.ts"],
];

Deno.test("similar values have different digests, and equivalent values have the same", () => {
  for (const [one, other] of LIKE_BUT_OTHER) {
    assert.notEqual(digestOf(one), digestOf(other), Deno.inspect([one, other]));
  }
  for (const [one, other] of ALIKE) assert.equal(digestOf(one), digestOf(other));
});

Deno.test("flipping any one bit, and any two, of a tensor changes its digest", () => {
  const drawn = [fc.integer({ min: 1, max: 9 }), fc.nat(287), fc.nat(287)] as const;
  const property = fc.property(...drawn, (n, i, j) => {
    const values = Float32Array.from({ length: n }, (_, index) => index * 0.3 - 1);
    const before = digestOf(values), bytes = new Uint8Array(values.buffer);
    const bits = new Set([i % (32 * n), j % (32 * n)]);
    for (const bit of bits) bytes[bit >> 3]! ^= 1 << (bit & 7);
    assert.notEqual(digestOf(values), before);
  });
  fc.assert(property, { numRuns: 3000 });
});

Deno.test("a view counts by its contents, at any offset of its buffer", () => {
  const bytes = Uint8Array.from({ length: 16 }, (_, n) => n), moved = new Uint8Array(32);
  for (const offset of [1, 4, 7]) {
    moved.set(bytes, offset);
    assert.equal(digestOf(moved.subarray(offset, offset + 16)), digestOf(bytes));
  }
});

/** Encodes and decodes a value. */
const reread = (value: unknown) => decodePayload(JSON.parse(JSON.stringify(encodePayload(value))));

const values = fc.anything({
  ...{ withBigInt: true, withMap: true, withSet: true, withTypedArray: true },
  withNullPrototype: false,
  key: fc.oneof(fc.string(), fc.constant("$")).filter((key) => key !== "__proto__"),
});

Deno.test("what a journal keeps of a message is the message, bit for bit", () => {
  const cyclic: Record<string, unknown> = { type: "Loop" };
  cyclic.self = [cyclic];
  const rare = [
    { when: new Date(5), never: new Date(NaN) },
    { half: Float16Array.of(1.5, NaN), large: new DataView(new ArrayBuffer(9000), 3) },
    { pattern: /a\n/giu, boxed: Object("text"), sparse: [1, , 3] },
    { error: new TypeError("t", { cause: [new Date(1)] }) },
    { named: Object.assign(["x"], { name: 1 }), shared: Uint8Array.of(1, 2) },
    { map: new Map([[new Date(2), new Set([new Date(3)])]]), zero: [-0, Infinity, NaN] },
    cyclic,
  ].map((one) => structuredClone(one));
  const keeps = (value: unknown) => {
    assert.deepStrictEqual(reread(value), value);
    assert.equal(digestOf(reread(value)), digestOf(value));
  };
  rare.forEach(keeps);
  fc.assert(fc.property(values, keeps));
  const shared = reread(new SharedArrayBuffer(3));
  assert.ok(shared instanceof SharedArrayBuffer && shared.byteLength === 3);
});

Deno.test("a value that cannot be sent, and a kind that is unknown, are refused", () => {
  for (const wrong of [() => {}, new WeakMap(), { in: Symbol() }]) {
    assert.throws(() => encodePayload(wrong), /TypeError: Cannot keep a message: its values must/);
  }
  // Also where every object has it.
  for (const kind of ["Int9Array", "toString", "constructor", "__proto__", "DataView"]) {
    const message = `Cannot read a message: its kind must be known, received ${kind}`;
    assert.throws(() => decodePayload({ $: [kind, "AAAA"] }), { name: "SyntaxError", message });
  }
});

const ring = (world: World, tokens = 3) => playRing(world, { nodes: 4, tokens, hops: 10 });

/** A simulated run and the text of its journal. */
async function record(
  scenario: Scenario<unknown>,
  { seed = 0, strategy, ...options }: Any = {},
): Promise<{ readonly run: Run; readonly text: string }> {
  let run: Run;
  const text = await journalOf(async (path) => {
    const pen = await writeJournal({ path, seed, strategy: strategy?.name, ...options });
    run = await simulate({ seed, strategy, ...pen }, scenario);
    pen.close();
  });
  return { run: run!, text };
}

let known: ReturnType<typeof record> | undefined;

/** A ring in a random order; recorded once, as its journal hashes all that players import. */
const recordRing = () =>
  known ??= record(ring, {
    ...{ seed: 4, strategy: random(), actors: [PLAYERS] },
    ...{ configuration: { stages: 4 }, device: "reference" },
  });

/** Changes a journal's text, and optionally recomputes its checksums and hashes. */
function change(text: string, from: RegExp, to: string, isForged = true): string {
  assert.match(text, from);
  const changed = text.replace(from, to);
  return isForged ? checksummed(recordsOf(changed)) : changed;
}

/** Replays the journal of a ring. */
const replay = async (text: string, options: ReplayOptions = {}, scenario: Scenario = ring) =>
  await replayJournal(parseJournal(text), scenario, options);

Deno.test("a journal says what a run was, in a header and a line for each step", async () => {
  const { run, text } = await recordRing();
  const { header, steps, isTorn, unfinished } = parseJournal(text);
  const { actors, package: _, deno, sum: __, ...rest } = header as Any;
  assert.deepEqual(rest, {
    ...{ format: "troupe-journal", version: 3, seed: 4, strategy: "random" },
    ...{ configuration: { stages: 4 }, device: "reference" },
  });
  assert.equal(deno, Deno.version.deno);
  // The actors' imports count as the actors do.
  for (const name of ["players.ts", "../../../actors/runtime/actor.ts"]) {
    assert.match(actors[name]!, /^[0-9a-f]{64}$/, name);
  }
  assert.deepEqual([unfinished, isTorn, steps.length], [[], false, run.steps]);
  assert.equal(steps.at(-1)!.hash, run.hash);
  assert.equal(steps.at(-1)!.name?.slice(0, 2), "0F");
});

Deno.test("a journal of a simulation replays choice by choice, another scenario does not", async () => {
  const { run, text } = await recordRing(), again = await replay(text, { actors: [PLAYERS] });
  assert.deepEqual([again.hash, again.deviations], [run.hash, run.deviations]);
  const error = await replay(text, {}, (world) => ring(world, 2)).catch((error) => error);
  assert.ok(error instanceof ReplayError);
  assert.deepEqual([error.step, error.runnable.length], [8, 2]);
  assert.match(error.message, /one of 3 candidates, received one of 2|must be node-2 < system#2/);
  const shorter = replay(text, {}, async ({ system }) => {
    for (let n = 0; n < 4; n++) system.spawn(SUM, undefined, { id: `node-${n}` });
    await Promise.resolve();
  });
  await assert.rejects(shorter, ReplayError);
});

const SEND_2 = /send node-2 Pass [0-9a-f]{16}/, SEND_3 = "send node-3 Pass 0000000000000000";
const HASH = /"players.ts":"[0-9a-f]{64}"/, NO_HASH = `"players.ts":"${"0".repeat(64)}"`;

/** Changes of a journal, and their refusals; some are accepted if changes are allowed. */
const CHANGED: readonly [from: RegExp, to: string, refusal: RegExp, isAllowed?: boolean][] = [
  [/"name":"0F1"/, '"name":"0F2"', /the hash of step \d+ of isolate 0 in line \d+ must be/],
  [SEND_2, SEND_3, /step \d+: it must be "send node-3 Pass 0{16}" .*, received "send node-2 Pass/],
  [/"package":"[^"]+"/, '"package":"0.0.1"', /must be package version 0.0.1, received/, true],
  [HASH, NO_HASH, /must be module players.ts with hash 0{64}, received hash/, true],
];

Deno.test("a changed line, a forged line, another version or another module is refused with its reason", async () => {
  const { text } = await recordRing(), actors = [PLAYERS];
  for (const [at, [from, to, refusal, isAllowed]] of CHANGED.entries()) {
    const changed = change(text, from, to, at > 0);
    await assert.rejects(replay(changed, { actors }), refusal);
    if (isAllowed) await replay(changed, { actors, mayHaveChanged: true });
  }
});

Deno.test("a journal of another version is refused by its name and version", async () => {
  const { text } = await recordRing(), changed = change(text, /"version":3/, '"version":1');
  const message = 'Cannot read "old.jsonl": its version must be 3, received 1';
  assert.throws(() => parseJournal(changed, "old.jsonl"), { name: "SyntaxError", message });
});

Deno.test("a truncated journal is read to its end, and the missing isolates are reported", async () => {
  const { text } = await recordRing();
  const whole = parseJournal(text), end = text.trimEnd().lastIndexOf("\n") + 1;
  for (const cut of [1, 2, 50]) {
    const { steps, isTorn, unfinished } = parseJournal(text.slice(0, end - cut));
    assert.deepEqual([isTorn, unfinished, steps], [true, [0], whole.steps.slice(0, -1)]);
  }
  const lines = text.split("\n").slice(0, -1);
  for (let count = 1; count < lines.length; count++) {
    const { steps, isTorn, unfinished } = parseJournal(`${lines.slice(0, count).join("\n")}\n`);
    assert.deepEqual([isTorn, unfinished, steps.length < count], [false, [0], true]);
  }
});

Deno.test("a field of another type is refused by its name, also where all sums are right", async () => {
  const scenario: Scenario<unknown> = (world) => playSum(world, [[1], [2, 3]]);
  const records = recordsOf((await record(scenario, { payloads: true })).text);
  const wrong = [undefined, null, true, -1, 0.5, "", "x", {}, [1], ["x", {}]];
  let cases = 0;
  for (const [at, record] of records.entries()) {
    const count = "n" in record ? "n" : "end" in record ? "end" : undefined;
    const later = count && { ...record, [count]: Number(record[count]) + 1 };
    if (later) assert.equal(refusedLine(checksummed(records.with(at, later))), at + 1, count);
    if (at > 6 && !("end" in record)) continue;
    for (const name of Object.keys(record)) {
      for (const value of wrong) {
        const text = checksummed(records.with(at, { ...record, [name]: value }));
        const refused = refusedLine(text);
        assert.ok(refused === 0 || refused >= at + 1, `line ${refused} for ${at + 1} ${name}`);
        if (refused === 0) {
          const { steps } = parseJournal(text);
          assert.ok(steps.every(({ did, from }) => Array.isArray(did) && from.includes("#")));
        } else cases++;
      }
    }
  }
  assert.ok(cases > 300, `${cases} were refused`);
  assert.equal(refusedLine(checksummed([...records, records.at(-1)!])), records.length + 1);
  // An isolate that was started, without any of its steps.
  const at = records.findIndex((record) => "did" in record);
  const spawning = records.with(at, { ...records[at]!, did: ["spawned child 3/1"] });
  assert.deepEqual(parseJournal(checksummed(spawning)).unfinished, [3]);
});

Deno.test("an inbox shows a changed actor at the first message where it matters", async () => {
  const journal = parseJournal(await realJournal("local"));
  const off: typeof sum = async (ctx, init) => {
    const { Add, ...others } = await sum(ctx, init);
    // As if the rounding to f32 were left out.
    const add = ({ by }: Any) => Add!({ by: by === 4 / 3 ? by + 1e-12 : by });
    return { ...others, Add: add } as Any;
  };
  const error = await replayInbox(off, journal, { id: "sum" }).catch((error) => error);
  assert.ok(error instanceof ReplayError);
  assert.match(error.message, /it must be state [0-9a-f]{16}, received state/);
  const wanted = journal.steps.filter(({ actor, type }) => actor === "sum" && type === "Add")[4]!;
  assert.equal(error.step, wanted.n);
});

Deno.test("a journal with a changed message is refused", async () => {
  const text = change(await realJournal("local"), /"by":4\}/, '"by":5}');
  const refusal = /line \d+ must hold the message "[0-9a-f]{16}", received "[0-9a-f]{16}"/;
  assert.throws(() => parseJournal(text), refusal);
});

Deno.test("an actor replays with its clock, its chance, its children and its timers", async () => {
  const { text } = await record(async ({ system, idle }) => {
    const guard = system.spawn(GUARD, undefined, { id: "guard" });
    for (const n of [1, 2, Infinity]) system.send(guard, { type: "Tell", n });
    await idle();
    system.send(guard, { type: "Dice" });
    await idle();
    await system.ask(guard, { type: "Read" });
  }, { seed: 9, payloads: true });
  const journal = parseJournal(text), { steps, compared } = await replayInbox(GUARD, journal);
  assert.ok(steps >= 6 && compared >= 8, `${steps} ${compared}`);
  const missing = replayInbox(GUARD, journal, { id: "missing" });
  await assert.rejects(missing, /must hold its first message/);
  const other = parseJournal(change(text, /"seed":9/, '"seed":8'));
  await assert.rejects(replayInbox(GUARD, other), ReplayError);
});

Deno.test("an inbox replays a child whose id has spaces and an ask that its signal ends", async () => {
  const parent = plain(`(ctx, { spec, to }) => ({
    async Go() {
      const { id } = ctx.spawn(spec, undefined, { id: "a child\\nof two lines" });
      const why = new RangeError("enough"), later = new AbortController();
      const ask = (signal) => ctx.ask(to, { type: "Read" }, { signal }).catch((error) => error === why);
      const early = await ask(AbortSignal.abort(why)), late = ask(later.signal);
      later.abort(why);
      ctx.reply([id, early, await late]);
    },
  })`);
  const { text } = await record(async ({ system }) => {
    const init = { spec: GUARD, to: system.spawn(GUARD, undefined, { id: "guard" }) };
    const ref = system.spawn(parent, init, { id: "parent" });
    const answer = await system.ask(ref, { type: "Go" });
    assert.deepEqual(answer, ["a child\nof two lines", true, true]);
  }, { payloads: true });
  assert.equal((await replayInbox(parent, parseJournal(text))).compared, 5);
});

Deno.test("messages may have the types of the runtime's work", async () => {
  const spec = plain(`(ctx) => {
    const seen = [], see = ({ type }) => void seen.push(type);
    let end;
    ctx.expose(() => seen);
    return {
      ...{ init: see, "answer:x": see },
      finish(message) { see(message); end?.(1); },
      End() { end = ctx.deferReply(); ctx.after(0, { type: "finish" }); },
    };
  }`);
  const play = (system: System) => {
    const to = system.spawn(spec, undefined, { id: "clash" });
    for (const type of ["finish", "init", "answer:x"]) system.send(to, { type });
    return system.ask(to, { type: "End" });
  };
  const journal = parseJournal(await systemJournal(play));
  const { steps, states } = await replayInbox(spec, journal);
  assert.deepEqual({ steps, states }, { steps: 7, states: 7 });
  await replayJournal(journal, ({ system }) => play(system));
});

Deno.test("timers of a real run fire in the recorded order", async () => {
  const spec = plain(`(ctx) => {
    const rung = [];
    let end;
    return {
      Set({ delays }) {
        for (const delay of delays) ctx.after(delay, { type: "Ring", delay });
        ctx.reply();
      },
      Ring({ delay }) { if (rung.push(delay) === 5) end(rung); },
      End() { end = ctx.deferReply(); },
    };
  }`);
  const play = async (system: System, pause: () => Promise<unknown> | undefined) => {
    const to = system.spawn(spec, undefined, { id: "clock" });
    const rung = system.ask(to, { type: "End" });
    for (const delays of [[40, 1.9, 1.1, 0], [20]]) {
      await system.ask(to, { type: "Set", delays });
      await pause();
    }
    return await rung;
  };
  let rung: unknown;
  const slowly = async (system: System) => rung = await play(system, () => delay(30));
  const journal = parseJournal(await systemJournal(slowly, {}));
  const { value } = await replayJournal(journal, ({ system }) => play(system, () => undefined));
  assert.deepEqual(value, rung);
});

Deno.test("a question does not time out in a replay if a killed program has lost who answered", async () => {
  const server = plain("(ctx) => ({ Read() { ctx.reply(1); } })");
  const client = plain(`(ctx, to) => ({
    async Ask() { ctx.reply(await ctx.ask(to, { type: "Read" })); },
  })`);
  const play = (system: System) => {
    const to = system.spawn(server, undefined, { id: "server", isolate: "worker" });
    const asker = system.spawn(client, to, { id: "client" });
    return system.ask(asker, { type: "Ask" }, { timeoutMs: Infinity });
  };
  const lines = (await systemJournal(play, {})).split("\n");
  const end = lines.findIndex((line) => line.includes("answer:Read"));
  const kept = lines.slice(0, end + 1).filter((line) => !line.includes('"isolate":1,'));
  const { steps } = await replayJournal(
    parseJournal(`${kept.join("\n")}\n`),
    ({ system }) => play(system),
  );
  assert.ok(steps >= 2);
});

Deno.test("questions that were refused or had no answer have the same errors in a replay", async () => {
  const asker = plain(`(ctx, to) => {
    const ask = (...question) => ctx.ask(...question).catch(String);
    return {
      async Go() {
        const errors = [await ask(to, { type: "Mute" }), await ask(ctx.self, { type: "Go" })];
        for (const [other, options] of [[to, { timeoutMs: -1 }], [to, { lane: "none" }], [null]]) {
          errors.push(await ask(other, { type: "Mute" }, options));
        }
        ctx.stop();
        ctx.reply([...errors, await ask(to, { type: "Mute" })]);
      },
    };
  }`);
  const { text } = await record(async ({ system }) => {
    const mute = plain("(ctx) => ({ Mute() { ctx.deferReply(); } })");
    const to = system.spawn(mute, undefined, { id: "mute" });
    const ref = system.spawn(asker, to, { id: "asker" });
    const errors = await system.ask(ref, { type: "Go" }, { timeoutMs: Infinity });
    assert.equal(errors.length, 6);
  }, { payloads: true });
  assert.equal((await replayInbox(asker, parseJournal(text), { id: "asker" })).compared, 8);
});

Deno.test("without payloads an inbox cannot be replayed, and the error says so", async () => {
  const text = await journalOf(async (path) => {
    const { onStep, close } = await writeJournal({ path });
    await simulate({ onStep }, (world) => playSum(world, [[1]]));
    close();
  });
  const refusal = /Cannot replay step 0 from its message: the journal must keep payloads/;
  await assert.rejects(replayInbox(SUM, parseJournal(text), { id: "sum" }), refusal);
});
