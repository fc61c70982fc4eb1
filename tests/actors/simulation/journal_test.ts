import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import fc from "../../fast_check.ts";
import { createSystem } from "../../../actors/runtime/mod.ts";
import {
  beginJournal,
  digestOf,
  random,
  readJournal,
  ReplayError,
  replayInbox,
  replayJournal,
  type Scenario,
  simulate,
  writeJournal,
} from "../../../testing.ts";
import { parseJournal } from "../../../actors/simulation/journal/journal.ts";
import { decodePayload, encodePayload } from "../../../actors/simulation/journal/payload_codec.ts";
import { recordsOf, sealed } from "./forged.ts";
import { ASKER, GUARD, playAsker, playRing, playSum, SUM } from "./players.ts";

const MODULE = new URL("./players.ts", import.meta.url).href;

async function withFile(test: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile();
  try {
    await test(path);
  } finally {
    await Deno.remove(path);
  }
}

const ring: Scenario<void> = (world) => playRing(world, { nodes: 4, tokens: 3, hops: 10 });

/** Records a run of the ring in a random order. */
async function recordRing(path: string, options: object = {}) {
  const { onStep, onMessage, close } = await writeJournal({
    path,
    seed: 4,
    strategy: "random",
    actors: [MODULE],
    ...options,
  });
  const run = await simulate({ seed: 4, strategy: random(), onStep, onMessage }, ring);
  close();
  return run;
}

const values = fc.anything({
  withBigInt: true,
  withMap: true,
  withSet: true,
  withTypedArray: true,
  withNullPrototype: false,
  key: fc.oneof(fc.string(), fc.constant("$")).filter((key) => key !== "__proto__"),
});

Deno.test("what a journal keeps of a message is the message, bit for bit", () => {
  fc.assert(fc.property(values, (value) => {
    const text = JSON.stringify(encodePayload(value));
    const read = decodePayload(JSON.parse(text));
    assert.equal(digestOf(read), digestOf(value));
    assert.deepEqual(read, value);
  }));
});

Deno.test("a message of a kind that nobody knows is refused by name, also where every object has it", () => {
  for (const kind of ["Int9Array", "toString", "constructor", "__proto__", "DataView"]) {
    assert.throws(() => decodePayload({ $: [kind, "AAAA"] }), {
      name: "SyntaxError",
      message: `Cannot read a message: its kind must be known, received ${kind}`,
    });
  }
});

Deno.test("whatever can be cloned can be kept in a journal", () => {
  const cyclic: Record<string, unknown> = { type: "Loop" };
  cyclic.self = [cyclic];
  const kept = [
    { when: new Date(5), never: new Date(NaN) },
    { half: Float16Array.of(1.5, NaN), large: new DataView(new ArrayBuffer(9000), 3) },
    {
      pattern: /a\n/giu,
      boxed: Object("text"),
      error: new TypeError("t", { cause: [new Date(1)] }),
    },
    { sparse: [1, , 3], named: Object.assign(["x"], { name: 1 }) },
    { shared: Uint8Array.of(1, 2), map: new Map([[new Date(2), new Set([new Date(3)])]]) },
    cyclic,
  ];
  for (const value of kept.map((one) => structuredClone(one))) {
    const read = decodePayload(JSON.parse(JSON.stringify(encodePayload(value))));
    assert.deepStrictEqual(read, value);
    assert.equal(digestOf(read), digestOf(value));
  }
  const shared = decodePayload(encodePayload(new SharedArrayBuffer(3)));
  assert.ok(shared instanceof SharedArrayBuffer && shared.byteLength === 3);
  for (const wrong of [() => {}, new WeakMap(), { in: Symbol() }]) {
    assert.throws(
      () => encodePayload(wrong),
      /TypeError: Cannot keep a message: all in it must be/,
    );
  }
});

Deno.test("a journal says what a run was, in a header and a line for each step", async () => {
  await withFile(async (path) => {
    const run = await recordRing(path, { configuration: { stages: 4 }, device: "reference" });
    const { header, steps, isTorn, unfinished } = await readJournal(path);
    assert.deepEqual(
      { ...header, package: "", actors: {}, deno: "", sum: "" },
      {
        format: "troupe-journal",
        version: 2,
        package: "",
        seed: 4,
        strategy: "random",
        configuration: { stages: 4 },
        actors: {},
        device: "reference",
        deno: "",
        sum: "",
      },
    );
    // What the actors import counts as they do.
    for (const name of ["players.ts", "../../../actors/runtime/mod.ts", "../../../deno.json"]) {
      assert.match(header.actors[name]!, /^[0-9a-f]{64}$/, name);
    }
    assert.deepEqual(unfinished, []);
    assert.equal(steps.length, run.steps);
    assert.equal(steps.at(-1)!.hash, run.hash);
    assert.equal(isTorn, false);
    assert.equal(steps.at(-1)!.name?.slice(0, 2), "0F");
  });
});

Deno.test("a journal of a simulation replays choice by choice", async () => {
  await withFile(async (path) => {
    const run = await recordRing(path);
    const again = await replayJournal(path, ring, { actors: [MODULE] });
    assert.equal(again.hash, run.hash);
    assert.deepEqual(again.deviations, run.deviations);
  });
});

/** Changes a journal's text. */
async function change(path: string, from: RegExp, to: string): Promise<void> {
  const text = await Deno.readTextFile(path);
  assert.match(text, from);
  await Deno.writeTextFile(path, text.replace(from, to));
}

/** Changes a journal's text and makes its sums and hashes right again. */
async function forge(path: string, from: RegExp, to: string): Promise<void> {
  await change(path, from, to);
  await Deno.writeTextFile(path, sealed(recordsOf(await Deno.readTextFile(path))));
}

Deno.test("a journal whose line was changed is refused, and the line is named", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    await change(path, /"type":"Pass","name":"0F1"/, '"type":"Pass","name":"0F2"');
    await assert.rejects(
      replayJournal(path, ring),
      /the hash of step \d+ of isolate 0 in line \d+ must be .*; it was changed after/,
    );
  });
});

Deno.test("what an actor did counts in replay, also where the journal was forged", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    await forge(path, /send node-2 Pass [0-9a-f]{16}/, "send node-3 Pass 0000000000000000");
    await assert.rejects(
      replayJournal(path, ring),
      /Cannot replay step \d+: it must be "send node-3 Pass 0{16}" .*, received "send node-2 Pass/,
    );
  });
});

Deno.test("another package version or a changed actor is refused before the first step", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    await forge(path, /"package":"[^"]+"/, '"package":"0.0.1"');
    await assert.rejects(replayJournal(path, ring), /must be package version 0.0.1, received/);
    await replayJournal(path, ring, { mayHaveChanged: true });
    await recordRing(path);
    await forge(path, /"players.ts":"[0-9a-f]{64}"/, `"players.ts":"${"0".repeat(64)}"`);
    const actors = [MODULE];
    await assert.rejects(
      replayJournal(path, ring, { actors }),
      /must be module players.ts with hash 0{64}, received hash/,
    );
    await replayJournal(path, ring, { actors, mayHaveChanged: true });
  });
});

Deno.test("another scenario is found at its first step, with who was runnable", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    const error = await replayJournal(
      path,
      (world) => playRing(world, { nodes: 4, tokens: 2, hops: 10 }),
    ).catch((error) => error);
    assert.ok(error instanceof ReplayError);
    assert.equal(error.step, 8);
    assert.match(error.message, /one of 3 candidates, received one of 2|must be node-2 < system#2/);
    assert.ok(error.runnable.length === 2);
  });
});

Deno.test("a run that ends before the journal does is a difference", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    const shorter: Scenario<void> = async ({ system }) => {
      for (let n = 0; n < 4; n++) system.spawn(SUM, undefined, { id: `node-${n}` });
      await Promise.resolve();
    };
    await assert.rejects(replayJournal(path, shorter), ReplayError);
  });
});

Deno.test("a torn last line is tolerated and reported", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    const text = await Deno.readTextFile(path);
    const whole = parseJournal(text), end = text.trimEnd().lastIndexOf("\n") + 1;
    for (const cut of [1, 2, 50]) {
      const { steps, isTorn, unfinished } = parseJournal(text.slice(0, end - cut));
      assert.equal(isTorn, true);
      assert.deepEqual(unfinished, [0]);
      assert.deepEqual(steps, whole.steps.slice(0, -1));
    }
  });
});

Deno.test("a tail that was cut between two lines is told by the end that is missing", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    const lines = (await Deno.readTextFile(path)).split("\n").slice(0, -1);
    assert.deepEqual(parseJournal(`${lines.join("\n")}\n`).unfinished, []);
    for (let count = 1; count < lines.length; count++) {
      const { steps, isTorn, unfinished } = parseJournal(`${lines.slice(0, count).join("\n")}\n`);
      assert.deepEqual({ isTorn, unfinished }, { isTorn: false, unfinished: [0] });
      assert.ok(steps.length < count);
    }
  });
});

/** Which line a reader of journals refuses; 0 when it refuses none. */
function refusedLine(text: string): number {
  try {
    parseJournal(text);
    return 0;
  } catch (error) {
    assert.ok(error instanceof SyntaxError, `${error}`);
    const [, line] = /^Cannot read a journal: .*\bline (\d+)\b[^\n]*$/.exec(error.message) ?? [];
    assert.ok(line !== undefined || /its (format|version) must be/.test(error.message), `${error}`);
    return Number(line ?? 1);
  }
}

Deno.test("a line that was changed, left out, doubled or moved is refused, whatever was in it", async () => {
  await withFile(async (path) => {
    await recordReal(path, "worker");
    const text = await Deno.readTextFile(path), lines = text.split("\n").slice(0, -1);
    assert.equal(refusedLine(text), 0);
    const isolateOf = (line: string) => JSON.parse(line).isolate;
    for (const [at, line] of lines.entries()) {
      // One character of the name and of the value of every field, of one line in four.
      for (const { index } of at % 4 === 0 ? line.matchAll(/"\w+":/g) : []) {
        for (const changed of [index + 1, line.indexOf(":", index) + 2]) {
          const other = line[changed] === "7" ? "8" : "7";
          const wrong = line.slice(0, changed) + other + line.slice(changed + 1);
          const text = [...lines.slice(0, at), wrong, ""].join("\n");
          assert.equal(refusedLine(text), at + 1, `${line} at ${changed}`);
        }
      }
      assert.ok(refusedLine(`${lines.toSpliced(at, 0, line).join("\n")}\n`) > 0, `doubled ${line}`);
      const later = lines.findIndex((other, to) => to > at && isolateOf(other) === isolateOf(line));
      if (later < 0) continue;
      assert.ok(refusedLine(`${lines.toSpliced(at, 1).join("\n")}\n`) > 0, `left out ${line}`);
      const swapped = lines.with(at, lines[later]!).with(later, line);
      assert.ok(refusedLine(`${swapped.join("\n")}\n`) > 0, `moved ${line}`);
    }
    // The header of another journal.
    const moved = lines.with(0, sealed([{ ...recordsOf(lines[0]!)[0]!, seed: 8 }]).trimEnd());
    assert.equal(refusedLine(`${moved.join("\n")}\n`), 2);
  });
});

Deno.test("a field of another type is refused by its name, also where all sums are right", async () => {
  await withFile(async (path) => {
    const { onStep, onMessage, close } = await writeJournal({ path, payloads: true });
    await simulate({ onStep, onMessage }, (world) => playSum(world, [[1], [2, 3]]));
    close();
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
  });
});

Deno.test("a journal survives the kill of its program, up to the last flush", async () => {
  await withFile(async (path) => {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", fileURLToPath(new URL("./killed_writer.ts", import.meta.url)), path],
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const reader = child.stdout.getReader();
    await reader.read();
    child.kill("SIGKILL");
    await child.status;
    await reader.cancel();
    const { steps } = await readJournal(path);
    assert.ok(steps.length >= 2000, `${steps.length} steps`);
    assert.deepEqual(steps.slice(-3).map(({ n }) => n - steps.length), [-3, -2, -1]);
  });
});

/** Real actors: one in a worker asks and tells one in another, which has state. */
async function recordReal(path: string, isolate: "local" | "worker" | "process"): Promise<void> {
  const observer = await beginJournal({ path, actors: [MODULE], payloads: true });
  await using system = createSystem({ observer });
  await playAsker(system, isolate);
}

/** The same from outside, simulated. */
const real: Scenario = ({ system }) => playAsker(system);

for (const isolate of ["local", "worker", "process"] as const) {
  Deno.test(`${isolate}: a journal of real actors replays simulated, to the same hashes`, async () => {
    await withFile(async (path) => {
      await recordReal(path, isolate);
      const { steps } = await readJournal(path);
      const played = steps.filter(({ actor }) => actor !== "system");
      assert.equal(new Set(played.map((step) => step.isolate)).size, isolate === "local" ? 1 : 2);
      const chains = new Map<string, string>();
      await replayJournal(path, real, {
        actors: [MODULE],
        onStep: ({ actor, chain }) => void chains.set(actor, chain),
      });
      for (const actor of ["sum", "asker"]) {
        const recorded = steps.findLast((step) => step.actor === actor && step.type !== "finish");
        assert.equal(chains.get(actor), recorded!.chain);
      }
    });
  });

  Deno.test(`${isolate}: one actor replays alone from its inbox`, async () => {
    await withFile(async (path) => {
      await recordReal(path, isolate);
      const journal = await readJournal(path);
      const sum = await replayInbox(SUM, journal);
      const stepsOf = (id: string) => journal.steps.filter(({ actor }) => actor === id).length;
      assert.equal(sum.steps, stepsOf("sum"));
      assert.equal(sum.states, sum.steps);
      const asker = await replayInbox(ASKER, path);
      assert.equal(asker.steps, stepsOf("asker"));
      assert.equal(asker.compared, 43);
    });
  });
}

Deno.test("an inbox shows a changed actor at the first message where it matters", async () => {
  await withFile(async (path) => {
    await recordReal(path, "local");
    const journal = await readJournal(path);
    const { sum } = await import("./players.ts");
    const off: typeof sum = (ctx, init) => {
      const handlers = sum(ctx, init) as Awaited<ReturnType<typeof sum>>;
      return {
        ...handlers,
        // As if somebody had left out the rounding to f32.
        Add: ({ by }) => handlers.Add({ type: "Add", by: by === 4 / 3 ? by + 1e-12 : by }),
      };
    };
    const error = await replayInbox(off, journal, { id: "sum" }).catch((error) => error);
    assert.ok(error instanceof ReplayError);
    assert.match(error.message, /it must be state [0-9a-f]{16}, received state/);
    const wanted = journal.steps.filter(({ actor, type }) => actor === "sum" && type === "Add")[4]!;
    assert.equal(error.step, wanted.n);
  });
});

Deno.test("an inbox with a changed message is refused", async () => {
  await withFile(async (path) => {
    await recordReal(path, "local");
    const by = /"is":\{"type":"Add","by":4\}/, other = '"is":{"type":"Add","by":5}';
    await forge(path, by, other);
    const refusal = /line \d+ must hold the message "[0-9a-f]{16}", received "[0-9a-f]{16}"/;
    await assert.rejects(replayInbox(SUM, path), refusal);
    await assert.rejects(replayJournal(path, real), refusal);
  });
});

Deno.test("an actor replays with its clock, its chance, its children and its timers", async () => {
  await withFile(async (path) => {
    const { onStep, onMessage, close } = await writeJournal({ path, seed: 9, payloads: true });
    await simulate({ seed: 9, onStep, onMessage }, async ({ system, idle }) => {
      const guard = system.spawn(GUARD, undefined, { id: "guard" });
      for (const n of [1, 2, Infinity]) system.send(guard, { type: "Tell", n });
      await idle();
      system.send(guard, { type: "Dice" });
      await idle();
      await system.ask(guard, { type: "Read" });
    });
    close();
    const { steps, compared } = await replayInbox(GUARD, path);
    assert.ok(steps >= 6 && compared >= 8, `${steps} ${compared}`);
    await assert.rejects(replayInbox(GUARD, path, { id: "nobody" }), /must hold its first message/);
    await forge(path, /"seed":9/, '"seed":8');
    await assert.rejects(replayInbox(GUARD, path), ReplayError);
  });
});

Deno.test("without payloads an inbox cannot be replayed, and that is said", async () => {
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
