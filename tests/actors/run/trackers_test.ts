/** What trackers are told: event files of TensorBoard's, read back by a reader of our own. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { type Metrics, tensorboard, train } from "../../../actors/mod.ts";
import { crc32c } from "../../../actors/run/metrics/tf_record.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { batch, batches, RINGS } from "./own_layers.ts";

/** An event as the file has it. */
interface ReadEvent {
  wallTime: number;
  step: number;
  fileVersion?: string;
  isStart?: boolean;
  scalars: Record<string, number>;
}

/** The checksum bit by bit, as RFC 3720 defines it: each bit divides by the polynomial. */
function slowCrc(bytes: Uint8Array): number {
  let crc = 0xffffffffn;
  for (const byte of bytes) {
    crc ^= BigInt(byte);
    for (let bit = 0; bit < 8; bit++) crc = crc & 1n ? (crc >> 1n) ^ 0x82f63b78n : crc >> 1n;
  }
  return Number(crc ^ 0xffffffffn);
}

/** What `tensorflow::crc32c::Unmask` does. */
const unmask = (stored: number) => {
  const rotated = (stored - 0xa282ead8) >>> 0;
  return ((rotated >>> 17) | (rotated << 15)) >>> 0;
};

function* recordsOf(bytes: Uint8Array): Generator<Uint8Array> {
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length;) {
    const length = Number(view.getBigUint64(at, true));
    const crcOf = (from: number, to: number) => slowCrc(bytes.subarray(from, to));
    assert.equal(unmask(view.getUint32(at + 8, true)), crcOf(at, at + 8), `length at ${at}`);
    const end = at + 12 + length;
    assert.equal(unmask(view.getUint32(end, true)), crcOf(at + 12, end), `data at ${at}`);
    yield bytes.slice(at + 12, end);
    at = end + 4;
  }
}

/** The fields of a message: numbers of their fields, and what stands there. */
function* fieldsOf(bytes: Uint8Array): Generator<readonly [number, number | Uint8Array]> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 1;; shift *= 128) {
      const byte = bytes[at++]!;
      value += (byte & 127) * shift;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const key = varint(), field = key >>> 3, type = key & 7;
    if (type === 0) yield [field, varint()];
    else if (type === 1) yield [field, view.getFloat64((at += 8) - 8, true)];
    else if (type === 5) yield [field, view.getFloat32((at += 4) - 4, true)];
    else if (type === 2) {
      const length = varint();
      yield [field, bytes.slice(at, at += length)];
    } else assert.fail(`wire type ${type}`);
  }
}

const text = (bytes: number | Uint8Array) => new TextDecoder().decode(bytes as Uint8Array);

function eventOf(record: Uint8Array): ReadEvent {
  const event: ReadEvent = { wallTime: 0, step: 0, scalars: {} };
  for (const [field, value] of fieldsOf(record)) {
    if (field === 1) event.wallTime = value as number;
    else if (field === 2) event.step = value as number;
    else if (field === 3) event.fileVersion = text(value);
    else if (field === 7) event.isStart = [...fieldsOf(value as Uint8Array)].join() === "1,1";
    else if (field === 5) {
      for (const [, one] of fieldsOf(value as Uint8Array)) {
        const { 1: tag, 2: simple } = Object.fromEntries(fieldsOf(one as Uint8Array));
        event.scalars[text(tag!)] = simple as number;
      }
    } else assert.fail(`field ${field}`);
  }
  return event;
}

const readEvents = async (path: string): Promise<ReadEvent[]> =>
  [...recordsOf(await Deno.readFile(path))].map(eventOf);

Deno.test("CRC-32C is that of RFC 3720", () => {
  const bytes = (of: (i: number) => number) => Uint8Array.from({ length: 32 }, (_, i) => of(i));
  for (
    const [input, crc] of [
      [new Uint8Array(), 0],
      [new TextEncoder().encode("123456789"), 0xe3069283],
      [bytes(() => 0), 0x8a9136aa],
      [bytes(() => 0xff), 0x62a8ab43],
      [bytes((i) => i), 0x46dd794e],
      [bytes((i) => 31 - i), 0x113fdb5c],
    ] as const
  ) {
    assert.equal(crc32c(input), crc);
    assert.equal(slowCrc(input), crc);
  }
});

folderTest(
  "TensorBoard is told what a run measures, step by step, whole at every moment",
  async (folder) => {
    const seen: Metrics[] = [], directory = join(folder, "not", "there", "yet");
    using tracker = tensorboard(directory);
    const file = async () => join(directory, (await namesIn(directory))[0]!);
    for await (
      const event of train({
        ...{ model: RINGS, data: batches(), steps: 5, device: "reference", runtime: "local" },
        ...{ microBatches: 2, workers: 2, learningRate: (step) => 0.01 * step },
        evaluation: { every: 2, batches: [batch(100)], atStart: true },
        metrics: (metrics) => {
          seen.push(metrics);
          tracker(metrics);
        },
      })
    ) {
      if (event.type !== "step" && event.type !== "evaluation") continue;
      assert.equal((await readEvents(await file())).length, seen.length + 2, "none is kept back");
    }
    const [version, start, ...events] = await readEvents(await file());
    assert.match(await file(), /events\.out\.tfevents\.\d{10}\.troupe\.\d+$/);
    assert.deepEqual([version!.fileVersion, version!.step], ["brain.Event:2", 0]);
    assert.deepEqual([start!.isStart, start!.step], [true, 1]);
    assert.deepEqual(events.map(({ step }) => step), [0, 1, 2, 2, 3, 4, 4, 5]);
    const round = Math.fround;
    events.forEach(({ wallTime, scalars }, i) => {
      const { type, time, memory, rss, ...metrics } = seen[i]!;
      assert.equal(wallTime, time / 1000);
      const { tokens, loss, evalLoss, perplexity, gradNorm } = metrics;
      const expected = type === "evaluation"
        ? { "eval/loss": round(evalLoss!), "eval/perplexity": round(perplexity!) }
        : {
          loss: round(loss!),
          grad_norm: round(gradNorm!),
          learning_rate: round(metrics.learningRate!),
          loss_scale: round(metrics.lossScale!),
          tokens_per_second: round(metrics.tokensPerSecond!),
          ...Object.fromEntries(
            (memory ?? []).map((bytes, w) => [`memory/worker-${w}`, round(bytes)]),
          ),
        };
      assert.deepEqual(scalars, { ...expected, tokens, "memory/program": round(rss) });
    });
  },
);

folderTest(
  "a run that goes on has a file of its own, which takes the place of the steps after",
  async (folder) => {
    const measured = { time: 1e12, seconds: 1, tokens: 8, rss: 1 };
    const runs: readonly (readonly [Metrics["type"], number])[][] = [
      [["step", 1], ["step", 2], ["step", 3]],
      [["evaluation", 2], ["step", 3]],
      [["step", 3], ["skip", 2 ** 31]],
    ];
    for (const run of runs) {
      using tracker = tensorboard(folder);
      for (const [type, step] of run) {
        tracker({
          type,
          step,
          ...measured,
          loss: Infinity,
          perplexity: 1e300,
        });
      }
    }
    const names = await namesIn(folder);
    assert.equal(names.length, 3, "in the order in which they were begun, though in one second");
    const starts = [], steps = [];
    for (const name of names) {
      const [, start, ...events] = await readEvents(join(folder, name));
      starts.push(start!.step);
      steps.push(events.map(({ step }) => step));
      assert.equal(events[0]!.scalars["eval/perplexity"], Infinity);
    }
    assert.deepEqual(starts, [1, 3, 3]);
    assert.deepEqual(steps, runs.map((run) => run.map(([, step]) => step)));
  },
);

folderTest("what keeps events from being written is said in one sentence", async (folder) => {
  const path = join(folder, "file");
  await Deno.writeTextFile(path, "");
  using tracker = tensorboard(path);
  const metrics = { type: "step", step: 1, time: 0, seconds: 1, tokens: 1, rss: 1 } as const;
  assert.throws(
    () => tracker(metrics),
    /^Error: Cannot write events to .*file: its disk must [^\n]+$/,
  );
});
