/** Metrics of a run: a record for each step and evaluation, and TensorBoard event files. */

import type { TrainEvent } from "../../../actors/options/train_events.ts";
import assert from "node:assert/strict";
import { join } from "node:path";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import type { Metrics, TrainOptions } from "../../../actors/options/train_options.ts";
import { tensorboard } from "../../../actors/run/metrics.ts";
import { train } from "../../../actors/run/train.ts";
import { crc32c } from "../../../actors/run/metrics.ts";
import { totalBytes } from "../../../kernels/stage/memory.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { batchesOf, outcome, SMALL } from "../runs.ts";
import { batch, batches, RINGS, trainRings } from "./own_layers.ts";

const LOCAL = { runtime: "local", device: "reference" } as const;

const run = (options: Partial<TrainOptions>) =>
  outcome(SMALL, { workers: 2, ...LOCAL, ...options });

/** Number of predictions in a step. */
const TOKENS = SMALL.seq * SMALL.microBatch * SMALL.microBatches;

Deno.test("each step and evaluation is measured once, before its event, with what its workers hold", async () => {
  const evaluation = { every: 2, batches: batchesOf(SMALL, 1), atStart: true };
  const learningRate = { rate: 0.01, schedule: "constant", warmup: 2 } as const;
  const measured: Metrics[] = [], before = Date.now(), { rss } = Deno.memoryUsage();
  const metrics = (one: Metrics) => void measured.push(one);
  const options = { schedule: "1f1b", offload: true } as const;
  const { events, plan, end } = await run({ evaluation, learningRate, metrics, ...options });
  const names = measured.map(({ type, step }) => `${type} ${step}`);
  assert.deepEqual(names, ["evaluation 0", "step 1", "step 2", "evaluation 2"]);
  assert.deepEqual(measured.map(({ tokens }) => tokens), [0, TOKENS, 2 * TOKENS, 2 * TOKENS]);
  assert.deepEqual(measured.map((one) => one.learningRate), [undefined, 0.005, 0.01, undefined]);
  assert.deepEqual(end.memory, plan.memory.map(({ device, host }) => ({ device, host })));
  assert.ok(end.memory!.every(({ host }) => totalBytes(host) > 0));
  const held = end.memory!.map(({ device, host }) => totalBytes(device) + totalBytes(host));
  for (const [i, one] of measured.entries()) {
    const event = events[i + 1] as Extract<TrainEvent, { type: "step" | "evaluation" }>;
    assert.ok(one.seconds > 0 && one.seconds <= end.seconds, `${one.seconds} s`);
    assert.ok(one.time >= before && one.time <= Date.now(), `${one.time} ms`);
    assert.ok(one.rss > rss / 4, `${one.rss} bytes are resident`);
    const { loss } = event;
    if (event.type === "evaluation") {
      assert.deepEqual(one, { ...one, evalLoss: loss, perplexity: Math.exp(loss) });
      assert.ok(!("loss" in one || "memory" in one));
    } else {
      const { gradNorm, lossScale, tokensPerSecond } = event;
      assert.deepEqual(one, { ...one, loss, gradNorm, lossScale, tokensPerSecond, memory: held });
      assert.equal(tokensPerSecond, TOKENS / event.seconds);
    }
  }
});

Deno.test("metrics come before the event of their step, and end the run where they fail", async () => {
  const order: string[] = [];
  const metrics = ({ step }: Metrics) => {
    order.push(`measured ${step}`);
    assert.ok(step < 2, "no room for metrics");
  };
  const run = train({ model: RINGS, data: batches(), steps: 4, ...LOCAL, metrics });
  const events = Array.fromAsync(run, ({ type }) => order.push(type));
  await assert.rejects(events, /no room for metrics/);
  assert.deepEqual(order, ["plan", "measured 1", "step", "measured 2"]);
});

Deno.test("a skipped step is measured too, and learns from no token", async () => {
  const measured: Metrics[] = [], metrics = (one: Metrics) => void measured.push(one);
  await assert.rejects(run({ device: "native", precision: "fp16", lossScale: 2 ** 30, metrics }));
  const said = measured.map(({ type, tokens, gradNorm }) => `${type} ${tokens} ${gradNorm}`);
  assert.deepEqual(said, ["skip 0 undefined", "skip 0 undefined"]);
});

Deno.test("CRC-32C is that of RFC 3720", () => {
  assert.equal(crc32c(new TextEncoder().encode("123456789")), 0xe3069283);
  assert.equal(crc32c(new Uint8Array(32).fill(0xff)), 0x62a8ab43);
});

/** Unmasks a CRC-32C, as `tensorflow::crc32c::Unmask`. */
const unmask = (stored: number) => {
  const rotated = (stored - 0xa282ead8) >>> 0;
  return ((rotated >>> 17) | (rotated << 15)) >>> 0;
};

function* recordsOf(bytes: Uint8Array): Generator<Uint8Array> {
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length;) {
    const length = Number(view.getBigUint64(at, true)), end = at + 12 + length;
    assert.equal(unmask(view.getUint32(at + 8, true)), crc32c(bytes.subarray(at, at + 8)));
    assert.equal(unmask(view.getUint32(end, true)), crc32c(bytes.subarray(at + 12, end)));
    yield bytes.slice(at + 12, end);
    at = end + 4;
  }
}

/** The fields of a message, each with its number. */
function fieldsOf(bytes: unknown): [number, unknown][] {
  const reader = new BinaryReader(bytes as Uint8Array), fields: [number, unknown][] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (type === WireType.Varint) fields.push([field, Number(reader.int64())]);
    else if (type === WireType.Bit64) fields.push([field, reader.double()]);
    else fields.push([field, type === WireType.Bit32 ? reader.float() : reader.bytes()]);
  }
  return fields;
}

const NONE = new Uint8Array();
const text = (bytes: unknown) => new TextDecoder().decode(bytes as Uint8Array);

/** Decodes a TensorFlow event; the step number is left out if it is 0. */
function eventOf(record: Uint8Array) {
  const fields = Object.fromEntries(fieldsOf(record));
  const { 1: wallTime, 2: step = 0, 3: version = NONE, 5: summary = NONE, 7: session = NONE } =
    fields;
  const scalars = fieldsOf(summary).map(([, one]) => {
    const { 1: tag, 2: value } = Object.fromEntries(fieldsOf(one));
    return [text(tag), value];
  });
  const isStart = `${fieldsOf(session)}` === "1,1", named = Object.fromEntries(scalars);
  return { wallTime, step, version: text(version), isStart, scalars: named };
}

const readEvents = async (path: string) => [...recordsOf(await Deno.readFile(path))].map(eventOf);

folderTest("TensorBoard gets what a run measures, whole at every step", async (folder) => {
  const seen: Metrics[] = [], directory = join(folder, "not", "there", "yet");
  using tracker = tensorboard(directory);
  const file = () => join(directory, [...Deno.readDirSync(directory)][0]!.name);
  await trainRings({
    ...{ steps: 5, learningRate: (step) => 0.01 * step },
    evaluation: { every: 2, batches: [batch(100)], atStart: true },
    metrics: (metrics) => {
      seen.push(metrics);
      tracker(metrics);
      assert.equal([...recordsOf(Deno.readFileSync(file()))].length, seen.length + 2);
    },
  });
  const [version, start, ...events] = await readEvents(file());
  assert.match(file(), /events\.out\.tfevents\.\d{10}\.troupe\.\d+$/);
  assert.deepEqual([version!.version, version!.step], ["brain.Event:2", 0]);
  assert.deepEqual([start!.isStart, start!.step], [true, 1]);
  assert.deepEqual(events.map(({ step }) => step), [0, 1, 2, 2, 3, 4, 4, 5]);
  const named = (one: Metrics) => ({
    ...{ loss: one.loss, grad_norm: one.gradNorm, learning_rate: one.learningRate },
    ...{ loss_scale: one.lossScale, tokens_per_second: one.tokensPerSecond, tokens: one.tokens },
    ...{ "eval/loss": one.evalLoss, "eval/perplexity": one.perplexity, "memory/program": one.rss },
    ...Object.fromEntries((one.memory ?? []).map((bytes, w) => [`memory/worker-${w}`, bytes])),
  });
  events.forEach(({ wallTime, scalars }, i) => {
    const all = Object.entries(named(seen[i]!)).filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name, Math.fround(value!)]);
    assert.deepEqual([wallTime, scalars], [seen[i]!.time / 1000, Object.fromEntries(all)]);
  });
});

folderTest("a resumed run has a file that replaces later steps", async (folder) => {
  const measured = { time: 1e12, seconds: 1, tokens: 8, rss: 1, loss: 9, perplexity: 1e300 };
  const runs: readonly (readonly [Metrics["type"], number])[][] = [
    [["step", 1], ["step", 2], ["step", 3]],
    [["evaluation", 2], ["step", 3]],
    [["step", 3], ["skip", 2 ** 31]],
  ];
  for (const run of runs) {
    using tracker = tensorboard(folder);
    for (const [type, step] of run) tracker({ type, step, ...measured });
  }
  const files = await namesIn(folder); // in the order in which they were begun, in one second
  const read = await Promise.all(files.map((name) => readEvents(join(folder, name))));
  assert.deepEqual(read.map(([, start]) => start!.step), [1, 3, 3]);
  const steps = read.map(([, , ...events]) => events.map(({ step }) => step));
  assert.deepEqual(steps, runs.map((run) => run.map(([, step]) => step)));
  for (const [, , first] of read) assert.equal(first!.scalars["eval/perplexity"], Infinity);
  const path = join(folder, "file");
  await Deno.writeTextFile(path, "");
  using tracker = tensorboard(path);
  const write = () => tracker({ type: "step", step: 1, ...measured });
  assert.throws(write, /^Error: Cannot write events to .*file: its disk must [^\n]+$/);
});
