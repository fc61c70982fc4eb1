/** What a journal keeps: digests, messages and steps; and what its readers refuse. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { createSystem } from "../../../actors/runtime/mod.ts";
import {
  beginJournal,
  Digest,
  digestOf,
  random,
  readJournal,
  ReplayError,
  replayInbox,
  replayJournal,
  type Run,
  type Scenario,
  simulate,
  writeJournal,
} from "../../../testing.ts";
import { parseJournal } from "../../../actors/simulation/journal/journal.ts";
import { decodePayload, encodePayload } from "../../../actors/simulation/journal/payload_codec.ts";
import { recordsOf, refusedLine, sealed } from "./forged.ts";
import { type Any, GUARD, playAsker, playRing, playSum, SUM } from "./players.ts";

const MODULE = new URL("./players.ts", import.meta.url).href;

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

const ALIKE: readonly [title: string, unknown, unknown][] = [
  [
    "an address counts by its name, not by its place",
    ...[0, 7].map((isolate) => ({
      ...{ id: "stage-1", isolate, serial: 3 + isolate },
    })) as [unknown, unknown],
  ],
  [
    "a failure counts by what it says, not by its stack",
    { name: "Error", message: "out of luck", stack: "at here" },
    { name: "Error", message: "out of luck", stack: "at there" },
  ],
  ["a file counts by its name, not by its folder", "file:///here/a.ts", "file:///there/a.ts"],
];

Deno.test("values that are much alike have different digests", () => {
  for (const [one, other] of LIKE_BUT_OTHER) {
    assert.notEqual(digestOf(one), digestOf(other), Deno.inspect([one, other]));
  }
});

for (const [title, one, other] of ALIKE) {
  Deno.test(title, () => assert.equal(digestOf(one), digestOf(other)));
}

Deno.test("flipping any one bit, and any two, of a tensor changes its digest", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 9 }), fc.nat(287), fc.nat(287), (n, i, j) => {
      const values = Float32Array.from({ length: n }, (_, index) => index * 0.3 - 1);
      const before = digestOf(values), bytes = new Uint8Array(values.buffer);
      const bits = new Set([i % (32 * n), j % (32 * n)]);
      for (const bit of bits) bytes[bit >> 3]! ^= 1 << (bit & 7);
      assert.notEqual(digestOf(values), before);
    }),
    { numRuns: 3000 },
  );
});

Deno.test("a view counts by what it shows, wherever in its buffer that is", () => {
  const bytes = Uint8Array.from({ length: 16 }, (_, n) => n), moved = new Uint8Array(32);
  for (const offset of [1, 4, 7]) {
    moved.set(bytes, offset);
    assert.equal(digestOf(moved.subarray(offset, offset + 16)), digestOf(bytes));
  }
});

Deno.test("a digest of parts is not that of their sum, and reset forgets", () => {
  const digest = new Digest();
  const one = digest.text("a").text("b").toString();
  assert.notEqual(digest.reset().text("ab").toString(), one);
  assert.equal(digest.reset().text("a").text("b").toString(), one);
  assert.match(one, /^[0-9a-f]{16}$/);
});

/** What is left of a value after it was written down and read again. */
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
    assert.throws(
      () => encodePayload(wrong),
      /TypeError: Cannot keep a message: all in it must be/,
    );
  }
  // Also where every object has it.
  for (const kind of ["Int9Array", "toString", "constructor", "__proto__", "DataView"]) {
    assert.throws(() => decodePayload({ $: [kind, "AAAA"] }), {
      name: "SyntaxError",
      message: `Cannot read a message: its kind must be known, received ${kind}`,
    });
  }
});

const ring: Scenario<void> = (world) => playRing(world, { nodes: 4, tokens: 3, hops: 10 });

async function withFile(test: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile();
  try {
    await test(path);
  } finally {
    await Deno.remove(path);
  }
}

/** Records a simulated run. */
async function record(
  path: string,
  scenario: Scenario<unknown>,
  { seed = 0, strategy, ...options }: Any = {},
): Promise<Run> {
  const pen = await writeJournal({ path, seed, strategy: strategy?.name, ...options });
  const { onStep, onMessage } = pen;
  const run = await simulate({ seed, strategy, onStep, onMessage }, scenario);
  pen.close();
  return run;
}

let known: Promise<{ readonly run: Run; readonly text: string }> | undefined;

/** The journal of a ring in a random order; recorded once, as it hashes all that players import. */
async function withRing(test: (path: string, run: Run, text: string) => Promise<void>) {
  known ??= (async () => {
    const path = await Deno.makeTempFile(), configuration = { stages: 4 };
    const options = { seed: 4, strategy: random(), actors: [MODULE] };
    const run = await record(path, ring, { ...options, configuration, device: "reference" });
    const text = await Deno.readTextFile(path);
    await Deno.remove(path);
    return { run, text };
  })();
  const { run, text } = await known;
  await withFile(async (path) => {
    await Deno.writeTextFile(path, text);
    await test(path, run, text);
  });
}

/** Changes a journal's text, and on demand makes its sums and hashes right again. */
async function change(path: string, from: RegExp, to: string, isForged = true): Promise<void> {
  const text = await Deno.readTextFile(path);
  assert.match(text, from);
  const changed = text.replace(from, to);
  await Deno.writeTextFile(path, isForged ? sealed(recordsOf(changed)) : changed);
}

Deno.test("a journal says what a run was, in a header and a line for each step", async () => {
  await withRing(async (path, run) => {
    const { header, steps, isTorn, unfinished } = await readJournal(path);
    const { actors, package: _, deno, sum: __, ...rest } = header as Any;
    assert.deepEqual(rest, {
      ...{ format: "troupe-journal", version: 2, seed: 4, strategy: "random" },
      ...{ configuration: { stages: 4 }, device: "reference" },
    });
    assert.equal(deno, Deno.version.deno);
    // What the actors import counts as they do.
    for (const name of ["players.ts", "../../../actors/runtime/mod.ts", "../../../deno.json"]) {
      assert.match(actors[name]!, /^[0-9a-f]{64}$/, name);
    }
    assert.deepEqual([unfinished, isTorn, steps.length], [[], false, run.steps]);
    assert.equal(steps.at(-1)!.hash, run.hash);
    assert.equal(steps.at(-1)!.name?.slice(0, 2), "0F");
  });
});

Deno.test("a journal of a simulation replays choice by choice, another scenario does not", async () => {
  await withRing(async (path, run) => {
    const again = await replayJournal(path, ring, { actors: [MODULE] });
    assert.deepEqual([again.hash, again.deviations], [run.hash, run.deviations]);
    const fewer: Scenario<void> = (world) => playRing(world, { nodes: 4, tokens: 2, hops: 10 });
    const error = await replayJournal(path, fewer).catch((error) => error);
    assert.ok(error instanceof ReplayError);
    assert.equal(error.step, 8);
    assert.match(error.message, /one of 3 candidates, received one of 2|must be node-2 < system#2/);
    assert.equal(error.runnable.length, 2);
    const shorter: Scenario<void> = async ({ system }) => {
      for (let n = 0; n < 4; n++) system.spawn(SUM, undefined, { id: `node-${n}` });
      await Promise.resolve();
    };
    await assert.rejects(replayJournal(path, shorter), ReplayError);
  });
});

Deno.test("a line that was changed is named, and a forged one shows in what the actors do", async () => {
  await withRing(async (path) => {
    await change(path, /"type":"Pass","name":"0F1"/, '"type":"Pass","name":"0F2"', false);
    await assert.rejects(
      replayJournal(path, ring),
      /the hash of step \d+ of isolate 0 in line \d+ must be .*; it was changed after/,
    );
  });
  await withRing(async (path) => {
    await change(path, /send node-2 Pass [0-9a-f]{16}/, "send node-3 Pass 0000000000000000");
    await assert.rejects(
      replayJournal(path, ring),
      /Cannot replay step \d+: it must be "send node-3 Pass 0{16}" .*, received "send node-2 Pass/,
    );
  });
});

Deno.test("another package version or a changed actor is refused before the first step", async () => {
  const actors = [MODULE], mayHaveChanged = true;
  await withRing(async (path) => {
    await change(path, /"package":"[^"]+"/, '"package":"0.0.1"');
    await assert.rejects(replayJournal(path, ring), /must be package version 0.0.1, received/);
    await replayJournal(path, ring, { mayHaveChanged });
  });
  await withRing(async (path) => {
    await change(path, /"players.ts":"[0-9a-f]{64}"/, `"players.ts":"${"0".repeat(64)}"`);
    const refused = /must be module players.ts with hash 0{64}, received hash/;
    await assert.rejects(replayJournal(path, ring, { actors }), refused);
    await replayJournal(path, ring, { actors, mayHaveChanged });
  });
});

Deno.test("a journal that was cut is read as far as it goes, and says what is missing", async () => {
  await withRing((_, __, text) => {
    const whole = parseJournal(text), end = text.trimEnd().lastIndexOf("\n") + 1;
    for (const cut of [1, 2, 50]) {
      const { steps, isTorn, unfinished } = parseJournal(text.slice(0, end - cut));
      assert.deepEqual([isTorn, unfinished, steps], [true, [0], whole.steps.slice(0, -1)]);
    }
    const lines = text.split("\n").slice(0, -1);
    for (let count = 1; count < lines.length; count++) {
      const { steps, isTorn, unfinished } = parseJournal(`${lines.slice(0, count).join("\n")}\n`);
      assert.deepEqual([isTorn, unfinished], [false, [0]]);
      assert.ok(steps.length < count);
    }
    return Promise.resolve();
  });
});

Deno.test("a field of another type is refused by its name, also where all sums are right", async () => {
  await withFile(async (path) => {
    await record(path, (world) => playSum(world, [[1], [2, 3]]), { payloads: true });
    const records = recordsOf(await Deno.readTextFile(path));
    const wrong = [undefined, null, true, -1, 0.5, "", "x", {}, [1], ["x", {}]];
    let cases = 0;
    for (const [at, record] of records.entries()) {
      if (at > 6 && !("end" in record)) continue;
      for (const name of Object.keys(record)) {
        for (const value of wrong) {
          const text = sealed(records.with(at, { ...record, [name]: value }));
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
    for (const [at, record] of records.entries()) {
      const count = "n" in record ? "n" : "end" in record ? "end" : undefined;
      const later = count && { ...record, [count]: Number(record[count]) + 1 };
      if (later) assert.equal(refusedLine(sealed(records.with(at, later))), at + 1, count);
    }
    assert.equal(refusedLine(sealed([...records, records.at(-1)!])), records.length + 1);
    // An isolate that was started, and of which nothing is left.
    const at = records.findIndex((record) => "did" in record);
    const spawning = records.with(at, { ...records[at]!, did: ["spawned child 3/1"] });
    assert.deepEqual(parseJournal(sealed(spawning)).unfinished, [3]);
  });
});

/** Records real actors, all in this isolate. */
async function withReal(test: (path: string) => Promise<void>) {
  await withFile(async (path) => {
    {
      const observer = await beginJournal({ path, payloads: true });
      await using system = createSystem({ observer });
      await playAsker(system);
    }
    await test(path);
  });
}

Deno.test("an inbox shows a changed actor at the first message where it matters", async () => {
  await withReal(async (path) => {
    const journal = await readJournal(path), { sum } = await import("./players.ts");
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
});

Deno.test("an inbox with a changed message is refused", async () => {
  await withReal(async (path) => {
    await change(path, /"is":\{"type":"Add","by":4\}/, '"is":{"type":"Add","by":5}');
    const refusal = /line \d+ must hold the message "[0-9a-f]{16}", received "[0-9a-f]{16}"/;
    await assert.rejects(replayInbox(SUM, path), refusal);
    await assert.rejects(replayJournal(path, ({ system }) => playAsker(system)), refusal);
  });
});

Deno.test("an actor replays with its clock, its chance, its children and its timers", async () => {
  await withFile(async (path) => {
    await record(path, async ({ system, idle }) => {
      const guard = system.spawn(GUARD, undefined, { id: "guard" });
      for (const n of [1, 2, Infinity]) system.send(guard, { type: "Tell", n });
      await idle();
      system.send(guard, { type: "Dice" });
      await idle();
      await system.ask(guard, { type: "Read" });
    }, { seed: 9, payloads: true });
    const { steps, compared } = await replayInbox(GUARD, path);
    assert.ok(steps >= 6 && compared >= 8, `${steps} ${compared}`);
    await assert.rejects(replayInbox(GUARD, path, { id: "nobody" }), /must hold its first message/);
    await change(path, /"seed":9/, '"seed":8');
    await assert.rejects(replayInbox(GUARD, path), ReplayError);
  });
});

Deno.test("without payloads an inbox cannot be replayed, and the error says so", async () => {
  await withFile(async (path) => {
    const { onStep, close } = await writeJournal({ path });
    await simulate({ onStep }, (world) => playSum(world, [[1]]));
    close();
    await assert.rejects(
      replayInbox(SUM, path, { id: "sum" }),
      /Cannot replay step 0 from its message: the journal must keep payloads/,
    );
  });
});
