/**
 * Metrics as TensorBoard reads them: a file of events, each some scalars of a step.
 *
 * @module
 */

import { join } from "node:path";
import process from "node:process";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { Metrics } from "./metrics.ts";
import { isAt } from "../../checkpoints/checkpoint_lock.ts";
import { type Scalar, scalarsOf } from "./scalars.ts";
import { tfRecord } from "./tf_record.ts";

/** Told what a run measures, for `train({ metrics })`; disposing of it closes what it writes to. */
export type Tracker = ((metrics: Metrics) => void) & Disposable;

/** How the names of such files begin, by which TensorBoard knows them. */
const PREFIX = "events.out.tfevents";

/** The names of the files that {@linkcode tensorboard} makes. */
export const EVENT_FILE = new RegExp(`^${RegExp.escape(PREFIX)}\\.\\d+\\.troupe\\.\\d+$`);

/**
 * Writes what a run measures to an event file of TensorBoard's in a directory: `loss`, `grad_norm`,
 * `learning_rate`, `loss_scale`, `tokens_per_second`, `tokens`, `eval/loss`, `eval/perplexity`,
 * `memory/program` and, for each worker, `memory/worker-N`.
 *
 * The file is made with the first record. Each record is given to the system as it comes; what was
 * evaluated, and all before it, is on the disk when the next step begins. A run that goes on makes a
 * file of its own, which says from which step on it takes the place of those before.
 *
 * @throws {Error} (when it is told of something) saying what keeps the file from being written.
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
      throw new Error(
        `Cannot write events to ${directory}: its disk must have room and let itself be written to, received ${
          (cause as Error).message
        }`,
        { cause },
      );
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

/** Makes a file that is not there yet: TensorBoard reads them in the order of their seconds. */
function makeFile(directory: string, seconds: number): [path: string, file: Deno.FsFile] {
  Deno.mkdirSync(directory, { recursive: true });
  for (;; seconds++) {
    const path = join(directory, `${PREFIX}.${seconds}.troupe.${process.pid}`);
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

/** Says that what files before have of a step and those after it no longer counts. */
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
