/**
 * Metrics as TensorBoard reads them: a file of events, each some scalars of a step.
 *
 * @module
 */

import type { TrainEvent } from "../options/train_events.ts";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { join } from "node:path";
import process from "node:process";
import { refusal } from "../../kernels/internal.ts";
import { isAt } from "../checkpoints/lock.ts";
import type { Metrics } from "../options/train_options.ts";
import { type Gauge, openMeter } from "../runtime/isolate.ts";
import { totalMemory } from "./memory.ts";
import { EVENT_PREFIX } from "../run_folder/metrics_file.ts";
import type { TrainingRun } from "./training_run.ts";

/**
 * Returns the measurements of an event; undefined for events without measurements.
 */
export function metricsOf(run: TrainingRun, event: TrainEvent): Metrics | undefined {
  if (event.type !== "step" && event.type !== "skip" && event.type !== "evaluation") return;
  const { loss } = event, job = event.type === "step" ? event.job : undefined;
  const common = {
    // The event of a job has the step of the job.
    step: job === undefined ? event.step : run.progress.step,
    time: Date.now(),
    seconds: (performance.now() - run.began) / 1000,
    tokens: run.progress.predictions,
    rss: Deno.memoryUsage().rss,
  };
  const own = "metrics" in event && event.metrics && { metrics: event.metrics };
  if (event.type === "evaluation") {
    return { type: event.type, ...common, evalLoss: loss, perplexity: Math.exp(loss), ...own };
  }
  const { type, learningRate, lossScale, predictions, seconds } = event, { memory } = run;
  return {
    type,
    ...common,
    ...job !== undefined && { job },
    loss,
    ...type === "step" && { gradNorm: event.gradNorm },
    learningRate,
    lossScale,
    tokensPerSecond: predictions / seconds,
    ...own,
    ...memory && { memory: memory.map((held) => totalMemory([held])) },
  };
}

/** A number that is tracked. */
interface Scalar {
  /** Name, with `/` between a group and its members. */
  readonly name: string;
  readonly value: number;
  /** Unit in UCUM; absent for plain numbers. */
  readonly unit?: string;
  /** The measured worker, if there is one. */
  readonly worker?: number;
}

/**
 * Returns the measured numbers of a record.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const measured = { type: "step", step: 1, time: 0, seconds: 1, tokens: 32, loss: 5, rss: 1e6 } as const;
 * const named = scalarsOf(measured).map(({ name, value }) => [name, value]);
 * assert.deepEqual(named, [["loss", 5], ["tokens", 32], ["memory/program", 1e6]]);
 * ```
 */
export function scalarsOf(metrics: Metrics): Scalar[] {
  const { loss, gradNorm, learningRate, lossScale, tokensPerSecond, tokens } = metrics;
  const { evalLoss, perplexity, rss, memory = [], metrics: own = {}, type } = metrics;
  const scalars: readonly (Omit<Scalar, "value"> & { readonly value: number | undefined })[] = [
    { name: "loss", value: loss },
    { name: "grad_norm", value: gradNorm },
    { name: "learning_rate", value: learningRate },
    { name: "loss_scale", value: lossScale },
    { name: "tokens_per_second", value: tokensPerSecond, unit: "{token}/s" },
    { name: "tokens", value: tokens, unit: "{token}" },
    { name: "eval/loss", value: evalLoss },
    { name: "eval/perplexity", value: perplexity },
    ...Object.entries(own).map(([name, value]) => ({
      name: type === "evaluation" ? `eval/${name}` : name,
      value,
    })),
    { name: "memory/program", value: rss, unit: "By" },
    ...memory.map((value, worker) => ({ name: "memory/worker", value, unit: "By", worker })),
  ];
  return scalars.filter((one): one is Scalar => one.value !== undefined)
    .map((one) => metrics.job === undefined ? one : { ...one, name: `${metrics.job}/${one.name}` });
}

/**
 * Reports the measurements of a run to OpenTelemetry: `troupe.train.step`, and gauges such as
 * `troupe.train.loss`, `troupe.train.eval.loss` and, with the attribute `troupe.worker`,
 * `troupe.train.memory.worker`.
 *
 * @returns undefined where telemetry is off.
 */
export function openTrainTelemetry(): ((metrics: Metrics) => void) | undefined {
  const meter = openMeter(), gauges = new Map<string, Gauge>();
  if (!meter) return undefined;
  return (metrics) => {
    const scalars: Scalar[] = [{ name: "step", value: metrics.step }, ...scalarsOf(metrics)];
    for (const { name, value, unit, worker } of scalars) {
      const full = `troupe.train.${name.replaceAll("/", ".")}`;
      const create = () => meter.createGauge(full, { ...unit && { unit } });
      const gauge = gauges.getOrInsertComputed(full, create);
      gauge.record(value, worker === undefined ? {} : { "troupe.worker": worker });
    }
  };
}

/** The polynomial of Castagnoli (CRC-32C, RFC 3720), its lowest bit first. */
const POLYNOMIAL = 0x82f63b78;

/** Checksum of each byte. */
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >>> 1 ^ POLYNOMIAL : crc >>> 1;
  return crc;
});

/**
 * The CRC-32C of some bytes.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(crc32c(new TextEncoder().encode("123456789")), 0xe3069283);
 * ```
 */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = TABLE[(crc ^ byte) & 0xff]! ^ crc >>> 8;
  return (crc ^ 0xffffffff) >>> 0;
}

/** Masks a checksum for storage: the CRC of data that contains CRCs is weak. */
const masked = (crc: number): number => (crc >>> 15 | crc << 17) + 0xa282ead8 >>> 0;

/** A record: its length in 8 bytes, their checksum, its bytes, their checksum; little-endian. */
function tfRecord(data: Uint8Array): Uint8Array<ArrayBuffer> {
  const record = new Uint8Array(8 + 4 + data.length + 4), view = new DataView(record.buffer);
  view.setBigUint64(0, BigInt(data.length), true);
  view.setUint32(8, masked(crc32c(record.subarray(0, 8))), true);
  record.set(data, 12);
  view.setUint32(12 + data.length, masked(crc32c(data)), true);
  return record;
}

/** Receiver of measurements for `train({ metrics })`; disposing of it closes its output. */
export type Tracker = ((metrics: Metrics) => void) & Disposable;

/**
 * Writes the measurements of a run to a TensorBoard event file in a directory: `loss`, `grad_norm`,
 * `learning_rate`, `loss_scale`, `tokens_per_second`, `tokens`, `eval/loss`, `eval/perplexity`,
 * `memory/program` and, for each worker, `memory/worker-N`.
 *
 * The file is made with the first record. Each record is written immediately. Evaluations
 * and all records before them are on the disk when the next step starts. A resumed run makes a new file,
 * which states the step from which it replaces the earlier files.
 *
 * @throws {Error} (when called) with the reason why the file cannot be written.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { tensorboard } from "@troupe/troupe/actors";
 *
 * const directory = await Deno.makeTempDir();
 * {
 *   using metrics = tensorboard(directory); // for train({ metrics })
 *   metrics({ type: "step", step: 1, time: Date.now(), seconds: 1, tokens: 32, loss: 5.5, rss: 1e8 });
 * }
 * const [file] = [...Deno.readDirSync(directory)];
 * assert.match(file!.name, /^events\.out\.tfevents\./);
 * await Deno.remove(directory, { recursive: true });
 * ```
 */
export function tensorboard(directory: string): Tracker {
  let file: Deno.FsFile | undefined, path = "";
  const track = (metrics: Metrics) => {
    const { step, type } = metrics, time = metrics.time / 1000;
    try {
      if (!file || !isAt(path, file)) {
        file?.close();
        [path, file] = makeFile(directory, Math.floor(time));
        // An evaluation comes after its step, which may be in the file before.
        const first = type === "evaluation" ? step + 1 : step;
        append(file, versionEvent(time), startEvent(time, first));
      }
      append(file, scalarsEvent(time, step, scalarsOf(metrics)));
      if (type === "evaluation") file.syncDataSync();
    } catch (cause) {
      const must = "its disk must have room and let itself be written to";
      throw refusal(`write events to ${directory}`, must, cause, Error);
    }
  };
  return Object.assign(track, {
    [Symbol.dispose]() {
      file?.syncDataSync();
      file?.close();
      file = undefined;
    },
  });
}

/** Creates a new file. TensorBoard reads files in the order of the seconds in their names. */
function makeFile(directory: string, seconds: number): [path: string, file: Deno.FsFile] {
  Deno.mkdirSync(directory, { recursive: true });
  for (;; seconds++) {
    const path = join(directory, `${EVENT_PREFIX}.${seconds}.troupe.${process.pid}`);
    try {
      return [path, Deno.openSync(path, { write: true, createNew: true })];
    } catch (error) {
      if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
    }
  }
}

function append(file: Deno.FsFile, ...events: Uint8Array[]): void {
  for (const bytes of events.map(tfRecord)) {
    for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
  }
}

/** Fields of TensorFlow's messages `Event`, `Summary`, `Summary.Value` and `SessionLog`. */
const EVENT = { wallTime: 1, step: 2, fileVersion: 3, summary: 5, sessionLog: 7 } as const;
const SUMMARY = { value: 1 } as const;
const VALUE = { tag: 1, simpleValue: 2 } as const;
const SESSION_LOG = { status: 1, START: 1 } as const;

const { Varint, Bit32, Bit64, LengthDelimited } = WireType;

const timed = (time: number) => new BinaryWriter().tag(EVENT.wallTime, Bit64).double(time);

/** The event that every file begins with. */
const versionEvent = (time: number) =>
  timed(time).tag(EVENT.fileVersion, LengthDelimited).string("brain.Event:2").finish();

/** Invalidates the values of a step and of later steps in earlier files. */
const startEvent = (time: number, step: number) =>
  timed(time).tag(EVENT.step, Varint).int64(step)
    .tag(EVENT.sessionLog, LengthDelimited).fork()
    .tag(SESSION_LOG.status, Varint).int32(SESSION_LOG.START)
    .join().finish();

function scalarsEvent(time: number, step: number, scalars: readonly Scalar[]) {
  const event = timed(time).tag(EVENT.step, Varint).int64(step)
    .tag(EVENT.summary, LengthDelimited).fork();
  for (const { name, value, worker } of scalars) {
    event.tag(SUMMARY.value, LengthDelimited).fork()
      .tag(VALUE.tag, LengthDelimited).string(worker === undefined ? name : `${name}-${worker}`)
      .tag(VALUE.simpleValue, Bit32).float(Math.fround(value)) // it may be beyond what F32 holds
      .join();
  }
  return event.join().finish();
}
