/** A stalled run is distinguished from a slow one. */

import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import { StallWatch } from "../../../actors/run/pipeline.ts";
import { Heartbeat } from "../../../actors/runtime/isolate.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { atDepth } from "../../depth.ts";
import { inFolder } from "../../in_folder.ts";
import { startedProcesses } from "../child_processes.ts";
import { batchesOf, type Sizes, SMALL } from "../runs.ts";
import { openOracle, type Options, TINY, trained } from "./trained.ts";

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

Deno.test("a stall is a row of looks at which no actor was at work, however long the time between two", () => {
  lookByHand((look) => {
    let activity = 0, stalls = 0;
    const watch = new StallWatch({ activity: () => activity }, 1000, () => stalls++);
    const afterQuiet = (looks: number) => {
      for (let n = 0; n < looks; n++) look();
      return stalls;
    };
    watch.begin(1000);
    afterQuiet(7);
    activity++;
    assert.equal(afterQuiet(8), 0, "the first of these looks has seen work");
    assert.equal(afterQuiet(1), 1);
    assert.equal(afterQuiet(20), 1, "a stall is reported once");
    watch.begin(2000);
    assert.equal(afterQuiet(16), 1, "the first look only sees the count of now");
    assert.equal(afterQuiet(1), 2);
    watch.begin(1000);
    watch.begin(Infinity);
    assert.equal(afterQuiet(20), 2, "no answer is waited for");
  });
});

Deno.test("an isolate reports work from the start of a busy step to its end, and once more after", async () => {
  const heartbeat = new Heartbeat(), seen = new Heartbeat(heartbeat.buffer);
  assert.equal(seen.isAlive(), false);
  const done = Promise.withResolvers<string>(), working = heartbeat.busy(() => done.promise);
  assert.deepEqual([seen.isAlive(), seen.isAlive(), seen.isAlive()], [true, true, true]);
  done.resolve("done");
  assert.equal(await working, "done");
  assert.deepEqual([seen.isAlive(), seen.isAlive()], [true, false]);
  await assert.rejects(heartbeat.busy(() => Promise.reject(new Error("no"))), /no/);
  assert.deepEqual([seen.isAlive(), seen.isAlive()], [true, false]);
});

for (const isolate of ["worker", "process"] as const) {
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
    /** Returns how often the isolate was seen working until it answered. */
    const looks = async (type: Order["type"], ms: number) => {
      let last = system.activity!(), busy = 0;
      const timer = setInterval(() => {
        const now = system.activity!();
        if (now > last) busy++;
        last = now;
      }, 100);
      await system.ask(kernel, { type, ms }, { timeoutMs: Infinity });
      clearInterval(timer);
      return busy;
    };
    await looks("Compute", 1);
    assert.ok(await looks("Compute", 1000) >= 3);
    // Late reports of earlier work may still arrive.
    assert.ok(await looks("Hang", 700) <= 2);
  });
}

/** Retries: a loaded machine may pause all threads for longer than a stall. A false stall fails each. */
const PATIENCE = 2;

Deno.test("a pipeline that fills over slow links, and evaluates over them, has not stalled", async () => {
  const sizes: Sizes = { ...TINY, steps: 1, microBatches: 2 };
  const link = { latencyUs: 150_000, gigabytesPerSecond: 1 };
  const evaluation = { every: 1, batches: batchesOf(sizes, 1) };
  const slow = { link, stallMs: 400, retries: PATIENCE };
  await openOracle(sizes)("links", { workers: 4, device: "reference", evaluation }, slow);
});

for (const schedule of ["1f1b", "pipedream"]) {
  Deno.test(`data that takes longer than a stall is no stall (${schedule})`, async () => {
    const sizes: Sizes = { ...TINY, microBatches: 2, steps: 4 };
    const slowly = async function* () {
      for (const [n, batch] of batchesOf(sizes).entries()) {
        // Without flushes steps are under way meanwhile, and cannot end.
        if (n === 5) await delay(1200);
        yield batch;
      }
    };
    const options: Options = { workers: 2, device: "reference", runtime: "local", schedule };
    const patience = { data: slowly(), stallMs: 400, retries: PATIENCE };
    assert.equal((await trained(sizes, { ...options, ...patience })).losses.length, sizes.steps);
  });
}

for (const isolation of atDepth(["worker"] as const, ["worker", "process"] as const)) {
  Deno.test(`a kernel that takes longer than a stall is no stall (${isolation})`, async () => {
    // An action on the reference device takes several times as long as a stall.
    const sizes: Sizes = { ...SMALL, layers: 1, hidden: 128, seq: 128, microBatches: 1, steps: 1 };
    const options: Options = { workers: 2, device: "reference", schedule: "gpipe", isolation };
    const { losses } = await trained(sizes, { ...options, stallMs: 400, retries: PATIENCE });
    assert.equal(losses.length, 1);
  });
}

/** `tests/actors/run` also tests that a worker stuck in a step of 1F1B is ended. */
const STOPPED: readonly (readonly [schedule: string, moment: string, what: string])[] = [
  ["1f1b", "a save", "a save"],
  ["pipedream", "a step", "step ([3-9]|1\\d)"],
  ...atDepth([], [["1f1b", "an evaluation", "an evaluation"]] as const),
];

/** Stops a process after its second step, before the given moment. */
const stopProcess = ([schedule, moment, what]: typeof STOPPED[number]) =>
  inFolder(async (directory) => {
    // Without flushes the next steps have started; some must be left.
    const sizes: Sizes = { ...TINY, steps: schedule === "1f1b" ? 4 : 12, microBatches: 2 };
    const every = moment === "a save" ? 2 : 99, told: string[] = [];
    const options: Options = {
      ...{ workers: 2, schedule },
      ...moment === "an evaluation" && { evaluation: { every: 2, batches: batchesOf(sizes, 1) } },
    };
    const { bits } = await trained(sizes, { ...options, runtime: "serial" });
    const checkpoint = { directory, every, config: {} };
    const announce = (line: string) => void told.push(line);
    let stopped = 0;
    const run = await trained(sizes, {
      ...{ ...options, isolation: "process", stallMs: 1500, announce, checkpoint },
    }, (event) => {
      if (event.type !== "step" || event.step !== 2 || stopped !== 0) return;
      stopped = startedProcesses().at(-1)!;
      Deno.kill(stopped, "SIGSTOP");
    });
    assert.equal(run.bits.hash, bits.hash);
    const all = told.join("\n");
    assert.match(all, new RegExp(`^${what} stalled.*does not answer.*the run continues`));
    assert.match(all, /worker-0 waits for (0[FB]\d+|the next step), with \[.*\] ready/);
    assert.ok(!startedProcesses().includes(stopped));
  });

for (const one of STOPPED) {
  Deno.test({
    name: `a process of ${one[0]} that is stopped before ${one[1]} is ended, and no bit is another`,
    ignore: Deno.build.os !== "linux",
    fn: () => stopProcess(one),
  });
}
