/** What does not move is told from what takes its time. */

import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import { openStallWatch } from "../../../actors/run/engines/stall_watch.ts";
import { Pulse } from "../../../actors/runtime/isolate/pulse.ts";
import { createSystem } from "../../../actors/mod.ts";
import { train, type TrainOptions } from "../../../actors/mod.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { startedProcesses } from "../child_processes.ts";
import { batchesOf, outcome, type Sizes, SMALL } from "../runs.ts";

/** Calls `look` by hand in place of a timer. */
function lookByHand(run: (look: () => void) => void): void {
  const { setInterval, clearInterval } = globalThis;
  const looks = new Set<() => void>();
  globalThis.setInterval = ((look: () => void) => (looks.add(look), look)) as never;
  globalThis.clearInterval = ((look: () => void) => looks.delete(look)) as never;
  try {
    run(() => looks.forEach((look) => look()));
  } finally {
    Object.assign(globalThis, { setInterval, clearInterval });
  }
}

Deno.test("a stall is a row of looks at which nobody was at work, however long the time between two", () => {
  lookByHand((look) => {
    let activity = 0, stalls = 0;
    const watch = openStallWatch({ activity: () => activity }, 1000, () => stalls++);
    watch.begin(1000);
    const quiet = (looks: number) => {
      for (let n = 0; n < looks; n++) look();
    };
    quiet(7);
    activity++;
    quiet(8);
    assert.equal(stalls, 0, "the first of these looks saw that somebody had been at work");
    quiet(1);
    assert.equal(stalls, 1);
    quiet(20);
    assert.equal(stalls, 1, "it is told once");
    watch.begin(2000);
    quiet(16);
    assert.equal(stalls, 1, "the first look only sees how things stand");
    quiet(1);
    assert.equal(stalls, 2);
    watch.begin(1000);
    watch.end();
    quiet(20);
    assert.equal(stalls, 2, "nobody waits");
  });
});

Deno.test("an isolate is at work from the beginning of what is busy to its end, and once more after", async () => {
  const pulse = new Pulse(), seen = new Pulse(pulse.buffer);
  assert.equal(seen.stirs(), false);
  const done = Promise.withResolvers<string>(), working = pulse.busy(() => done.promise);
  assert.deepEqual([seen.stirs(), seen.stirs(), seen.stirs()], [true, true, true]);
  done.resolve("done");
  assert.equal(await working, "done");
  assert.deepEqual([seen.stirs(), seen.stirs()], [true, false]);
  await assert.rejects(pulse.busy(() => Promise.reject(new Error("no"))), /no/);
  assert.deepEqual([seen.stirs(), seen.stirs()], [true, false]);
});

for (const isolate of ["local", "worker", "process"] as const) {
  Deno.test(`a system sees that an actor is busy although its thread hears nothing (${isolate})`, async () => {
    const module = `data:text/javascript,export const kernel = (ctx) => ({
      async Compute({ ms }) {
        await ctx.busy(() => { const end = Date.now() + ms; while (Date.now() < end); });
        ctx.reply("done");
      },
      Hang({ ms }) { const end = Date.now() + ms; while (Date.now() < end); ctx.reply("over"); },
    })`;
    await using system = createSystem();
    type Order = { type: "Compute" | "Hang"; ms: number };
    const spec = { module, export: "kernel" };
    const kernel = system.spawn<undefined, Order>(spec, undefined, { id: "kernel", isolate });
    /** Looks at which it was at work, as long as the answer takes. */
    const looks = async (type: Order["type"], ms: number) => {
      let last = system.activity!(), busy = 0;
      const timer = setInterval(() => {
        const now = system.activity!();
        if (now > last) busy++;
        last = now;
      }, 150);
      await system.ask(kernel, { type, ms }, { timeoutMs: Infinity });
      clearInterval(timer);
      return busy;
    };
    await looks("Compute", 1);
    // In one isolate nobody can look meanwhile, and nobody takes it for a stall.
    if (isolate !== "local") assert.ok(await looks("Compute", 2000) >= 3);
    // What is late of before may still be heard.
    if (isolate !== "local") assert.ok(await looks("Hang", 1500) <= 2);
  });
}

Deno.test("a pipeline that fills over slow links, and evaluates over them, has not stalled", async () => {
  const sizes: Sizes = { ...SMALL, layers: 6, steps: 1, microBatches: 2 };
  const link = { latencyUs: 200_000, gigabytesPerSecond: 1 };
  const evaluation = { every: 1, batches: batchesOf(sizes, 1) };
  const options: Partial<TrainOptions> = { workers: 6, runtime: "local", device: "reference" };
  const { bits } = await outcome(sizes, { ...options, evaluation });
  const slow = await outcome(sizes, { ...options, evaluation, link, stallMs: 500, retries: 0 });
  assert.deepEqual(slow.bits, bits);
});

for (const schedule of ["1f1b", "pipedream", "pipedream-2bw"]) {
  Deno.test(`data that takes longer than a stall is no stall (${schedule})`, async () => {
    const sizes: Sizes = { ...SMALL, microBatches: 2, steps: 4 };
    const slowly = async function* () {
      for (const [n, batch] of batchesOf(sizes).entries()) {
        // Without flushes steps are under way meanwhile, and cannot end.
        if (n === 5) await delay(2000);
        yield batch;
      }
    };
    const options: Partial<TrainOptions> = { workers: 2, device: "reference", schedule };
    const { bits } = await outcome(sizes, { ...options, data: slowly(), stallMs: 500, retries: 0 });
    assert.equal(bits.losses.length, sizes.steps);
  });
}

for (const isolation of ["worker", "process"] as const) {
  Deno.test(`a kernel that takes longer than a stall is no stall (${isolation})`, async () => {
    // An action on the reference device takes several times as long as a stall.
    const sizes: Sizes = { ...SMALL, layers: 1, hidden: 128, seq: 128, microBatches: 1, steps: 1 };
    const options: Partial<TrainOptions> = { workers: 2, device: "reference", schedule: "gpipe" };
    const { bits } = await outcome(sizes, { ...options, isolation, stallMs: 400, retries: 0 });
    assert.equal(bits.losses.length, 1);
  });
}

for (
  const [schedule, moment] of [
    ["1f1b", "a step"],
    ["1f1b", "a save"],
    ["1f1b", "an evaluation"],
    ["pipedream", "a step"],
    ["pipedream-2bw", "a step"],
  ] as const
) {
  Deno.test({
    name:
      `a process of ${schedule} that is stopped before ${moment} is ended, and no bit is another`,
    ignore: Deno.build.os !== "linux",
    async fn() {
      const isFlushed = schedule === "1f1b";
      // Without flushes the next steps have begun; some must be left.
      const sizes: Sizes = { ...SMALL, steps: isFlushed ? 4 : 12, microBatches: 2 };
      const directory = Deno.makeTempDirSync();
      const options: Partial<TrainOptions> = { workers: 2, device: "native", schedule };
      const every = { "a step": 99, "a save": 2, "an evaluation": 99 }[moment];
      const evaluation = moment === "an evaluation" && { every: 2, batches: batchesOf(sizes, 1) };
      const checkpoint = { directory, every, config: {} };
      const { bits } = await outcome(sizes, options), told: string[] = [];
      let stopped = 0, hash: string | undefined;
      for await (
        const event of train({
          ...options,
          model: gpt2(sizes, sizes.microBatch),
          data: batchesOf(sizes),
          steps: sizes.steps,
          microBatches: sizes.microBatches,
          isolation: "process",
          stallMs: 1500,
          announce: (line) => void told.push(line),
          checkpoint,
          ...evaluation && { evaluation },
        })
      ) {
        // What follows the second step is what the moment says.
        if (event.type === "step" && event.step === 2 && stopped === 0) {
          stopped = startedProcesses().at(-1)!;
          Deno.kill(stopped, "SIGSTOP");
        }
        if (event.type === "end") hash = event.weightsHash;
      }
      assert.equal(hash, bits.hash);
      const what = {
        "a step": isFlushed ? "step 3" : "step ([3-9]|1\\d)",
        "a save": "a save",
        "an evaluation": "an evaluation",
      };
      assert.match(
        told.join("\n"),
        new RegExp(`^${what[moment]} stalled.*does not answer.*going on`),
      );
      assert.match(
        told.join("\n"),
        /worker-0 waits for (0[FB]\d+|the next step), with \[.*\] ready/,
      );
      assert.ok(!startedProcesses().includes(stopped));
      await Deno.remove(directory, { recursive: true });
    },
  });
}
