/**
 * `metrics.jsonl`, the metrics of a run, one record per line; and the format of `run.json`.
 *
 * [Note: durability] Each line is written immediately in one call, without waiting for the disk. A
 * killed program loses at most the line that is being written. A failed machine loses lines since
 * the last checkpoint that had not reached the disk.
 *
 * @module
 */

import type { CoreShare, Plan, TrainEvent } from "../options/train_events.ts";
import { builtin, refusal, resultOr } from "../../kernels/internal.ts";
import { isAt, unlessMissing } from "../checkpoints/lock.ts";
import type { Metrics } from "../options/train_options.ts";
import { isObject, quoted } from "../options/file_schema.ts";
import { inOneLine } from "../runtime/types.ts";

const { dirname, join } = builtin("node:path");

/** Maximum bytes of a line: records are flat, with a number for each of some thousand workers. */
export const LINE_BYTES_MAX: number = 2 ** 20;

const PIECE_BYTES = 2 ** 16;

const NEW_LINE = 10;

/** A line of a file of JSON lines. */
interface JsonLine {
  readonly record: Readonly<Record<string, unknown>>;
  /** Offset of the next line in bytes. */
  readonly end: number;
}

/**
 * Reads the complete lines of a file. An incomplete last line is skipped: it is being written, or a
 * killed program has left it.
 *
 * @param from offset of the first line in bytes.
 * @throws {SyntaxError} with the offset of a line that is not an object or too long.
 */
export function* readJsonLines(
  file: Deno.FsFile,
  path: string,
  from = 0,
): Generator<JsonLine, void> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const piece = new Uint8Array(PIECE_BYTES);
  let rest = new Uint8Array(), at = from;
  file.seekSync(from, Deno.SeekMode.Start);
  for (let count; (count = file.readSync(piece)) !== null;) {
    const bytes = new Uint8Array(rest.length + count);
    bytes.set(rest);
    bytes.set(piece.subarray(0, count), rest.length);
    let begin = 0;
    for (let end; (end = bytes.indexOf(NEW_LINE, begin)) >= 0; begin = end + 1) {
      const length = end + 1 - begin;
      yield {
        record: parse(path, at, () => decoder.decode(bytes.subarray(begin, end))),
        end: at += length,
      };
    }
    rest = bytes.slice(begin);
    if (rest.length > LINE_BYTES_MAX) {
      throw wrong(path, at, `one of more than ${LINE_BYTES_MAX} bytes`);
    }
  }
}

function parse(path: string, at: number, text: () => string): JsonLine["record"] {
  let value: unknown;
  try {
    value = JSON.parse(text());
  } catch (error) {
    throw wrong(path, at, inOneLine((error as Error).message));
  }
  if (isObject(value)) return value;
  throw wrong(path, at, quoted(value));
}

function wrong(path: string, at: number, received: string): Error {
  const must = "each line must be a JSON object";
  return refusal(`read ${inOneLine(path)}`, must, `${received} at byte ${at}`, SyntaxError);
}

/**
 * Creates the metrics file of a run.
 *
 * @param announce receives the reason if writing fails; the run continues.
 * @throws {Error} when the file exists or cannot be created.
 */
export function createMetrics(path: string, announce: (line: string) => void): MetricsFile {
  const file = Deno.openSync(path, { write: true, createNew: true });
  return new MetricsFile(file, path, announce);
}

/**
 * Continues a metrics file after a step. Later records and an incomplete last line are removed. An
 * evaluation of that step is not added again.
 *
 * @throws {SyntaxError} when a line is invalid.
 */
export function continueMetrics(
  path: string,
  afterStep: number,
  announce: (line: string) => void,
): MetricsFile {
  const file = Deno.openSync(path, { read: true, write: true });
  try {
    let size = 0, isEvaluated = false;
    for (const { record: { step, type }, end } of readJsonLines(file, path)) {
      if (!(Number(step) <= afterStep)) break;
      size = end;
      isEvaluated = type === "evaluation" && step === afterStep;
    }
    file.truncateSync(size);
    return new MetricsFile(file, path, announce, size, isEvaluated ? afterStep : undefined);
  } catch (error) {
    file.close();
    throw error;
  }
}

/** The metrics file of a running run. */
export class MetricsFile implements Disposable {
  #isFailed = false;

  /**
   * Writes to an open file from `size` bytes on.
   *
   * @param evaluatedStep step whose evaluation is in the file already.
   */
  constructor(
    private file: Deno.FsFile,
    private readonly path: string,
    private readonly announce: (line: string) => void,
    private size = 0,
    private readonly evaluatedStep?: number,
  ) {
    file.seekSync(size, Deno.SeekMode.Start);
  }

  /**
   * Adds a line.
   *
   * @returns whether the file was removed, and is created again.
   */
  add(metrics: Metrics | Moved): boolean {
    if (metrics.type === "evaluation" && metrics.step === this.evaluatedStep) return false;
    let isRemoved = false;
    this.#attempt(() => {
      isRemoved = !isAt(this.path, this.file);
      if (isRemoved) this.#createAgain(metrics.step);
      const bytes = new TextEncoder().encode(JSON.stringify(metrics) + "\n");
      for (let done = 0; done < bytes.length;) done += this.file.writeSync(bytes.subarray(done));
      this.size += bytes.length;
    });
    return isRemoved;
  }

  /** Flushes the added lines to the disk. */
  sync(): void {
    this.#attempt(() => this.file.syncDataSync());
  }

  [Symbol.dispose](): void {
    this.file.close();
  }

  #createAgain(step: number): void {
    Deno.mkdirSync(dirname(this.path), { recursive: true });
    const created = Deno.openSync(this.path, { write: true, createNew: true });
    this.file.close();
    [this.file, this.size] = [created, 0];
    this.announce(`${this.path} was removed during the run: it continues from step ${step}`);
  }

  /** Writes until the first failure; later lines would follow an incomplete one. */
  #attempt(write: () => void): void {
    if (this.#isFailed) return;
    try {
      write();
    } catch (error) {
      this.#isFailed = true;
      const { message } = error as Error;
      this.announce(`Cannot write ${this.path}: ${message}; training continues without it`);
      // Readers skip an incomplete last line.
      resultOr(() => this.file.truncateSync(this.size), undefined);
    }
  }
}

/** Value of the field `format`. */
export const RUN_FORMAT = "troupe run";

/** Version of the format. */
export const RUN_VERSION = 1;

/** Names of the files of a run, next to its checkpoints. */
export const RUN_FILES = {
  /** A {@linkcode RunRecord}. */
  record: "run.json",
  /** `Metrics`, one per line. */
  metrics: "metrics.jsonl",
  /** Traced steps and events, one per line. */
  timeline: "timeline.jsonl",
  /** The tokenizer of the data, if it comes from a file. */
  tokenizer: "tokenizer.json",
  /** The trained model of an ONNX file, after the run. */
  onnx: "trained.onnx",
} as const;

/** Prefix of file names by which TensorBoard finds them. */
export const EVENT_PREFIX = "events.out.tfevents";

/** Names of the files that `tensorboard()` makes. */
export const EVENT_FILE = new RegExp(`^${RegExp.escape(EVENT_PREFIX)}\\.\\d+\\.troupe\\.\\d+$`);

/** Machine and versions of a run. */
export interface RunEnvironment
  extends Pick<CoreShare, "cores" | "threads">, Pick<Plan, "device" | "adapter" | "matrix"> {
  /** Version of Troupe. */
  readonly troupe: string;
  /** Version of Deno. */
  readonly deno: string;
  /** Version of ONNX Runtime; absent on the reference device. */
  readonly onnxruntime?: string;
  /** `Deno.build.os`. */
  readonly os: string;
  /** `Deno.build.arch`. */
  readonly arch: string;
}

/** A start or resumption of a run. */
export interface RunStart {
  /** Time in ISO 8601. */
  readonly at: string;
  /** Step of the checkpoint from which it resumed; otherwise 0. */
  readonly afterStep: number;
  /** Path of that checkpoint. */
  readonly from?: string;
  /** Arguments of `troupe train` as typed; none of a script. */
  readonly command: readonly string[];
  /** Path, or URL, of the script that called `train()`. */
  readonly script?: string;
  readonly environment: RunEnvironment;
}

/** End of a run. */
export interface RunEnd {
  /** Time in ISO 8601. */
  readonly at: string;
  /** True if it took all steps, exceeded `--patience`, or received a signal. */
  readonly reason: "finished" | "stopped early" | "interrupted";
  /** Optimizer steps of the whole run. */
  readonly step: number;
  /** Seconds of the last program. */
  readonly seconds: number;
  /** SHA-256 of all parameters. */
  readonly weightsHash: string;
  /** Best evaluation and its checkpoint, if requested. */
  readonly best?: (TrainEvent & { readonly type: "end" })["best"] & object;
}

/** A module of the user in a checkpoint. It is shown and compared, but never imported. */
export interface KeptComponent {
  /** Name or specifier. */
  readonly name: string;
  /** URL of the module. */
  readonly from: string;
  /** Hash of its modules. */
  readonly integrity: string;
}

/** Modules of the user, by kind. */
export type KeptComponents = {
  readonly [kind in "model" | "data" | "optimizer" | "supervisor"]?: KeptComponent;
};

/** Content of `run.json`. Paths in it are shown, but never opened. */
export interface RunRecord {
  readonly format: typeof RUN_FORMAT;
  readonly version: typeof RUN_VERSION;
  /** Name of the model. */
  readonly model: string;
  /** Start time in ISO 8601. */
  readonly started: string;
  /** Final values of all flags: given, inherited or default. */
  readonly flags: Readonly<Record<string, unknown>>;
  /** Modules of the user. */
  readonly parts?: KeptComponents;
  /** Training data, with the hash of its file or module. */
  readonly data: { readonly name: string; readonly hash?: string };
  /** Schedule, with the SHA-256 of its action lists as CSV. */
  readonly schedule: { readonly name: string; readonly hash?: string };
  /** Summary of the run. */
  readonly plan: Plan;
  /** Starts and resumptions: the first and the last ones. */
  readonly starts: readonly RunStart[];
  /** End; absent while it runs, and if it was killed. */
  readonly end?: RunEnd;
}

const TYPES: readonly unknown[] = ["step", "skip", "evaluation"] satisfies Metrics["type"][];

/** Limit of workers in a record, above that of any run. */
const WORKERS_MAX = 2 ** 16;

/** Limit of the name of a job. */
const JOB_MAX = 64;

/** The move of a run to other workers; it measures nothing. */
type Moved = Extract<TrainEvent, { readonly type: "resize" }>;

/**
 * Reads the metrics of a run in the order of steps, if the file exists, each with the offset of the
 * next record in bytes. An incomplete last line is skipped.
 *
 * @param directory folder of the run.
 * @param from offset of the first record in bytes.
 * @throws {SyntaxError} when a line is not a metrics record.
 */
export function* readMetrics(directory: string, from = 0) {
  const path = join(directory, RUN_FILES.metrics);
  using file = openRegular(path);
  if (!file) return;
  for (const { record, end } of readJsonLines(file, path, from)) {
    if (record.type !== "resize") yield { metrics: metricsOf(record, path), end };
  }
}

/** Opens a file if it exists, without following links. */
const openRegular = (path: string): Deno.FsFile | undefined =>
  unlessMissing(() => Deno.lstatSync(path).isFile ? Deno.openSync(path) : undefined, undefined);

/** Returns the finite numbers of a record. */
function metricsOf(record: Readonly<Record<string, unknown>>, path: string): Metrics {
  const { type, step, memory, metrics, job } = record;
  if (!TYPES.includes(type) || !Number.isSafeInteger(step) || (step as number) < 0) {
    const must = `each line must have a type (${TYPES.join(", ")}) and a step`;
    throw refusal(`read ${inOneLine(path)}`, must, quoted(record), SyntaxError);
  }
  const isMemory = Array.isArray(memory) && memory.length <= WORKERS_MAX &&
    memory.every(Number.isFinite);
  const numbersOf = (values: object) =>
    Object.fromEntries(Object.entries(values).filter(([, value]) => Number.isFinite(value)));
  return {
    ...numbersOf(record),
    type,
    ...isObject(metrics) && { metrics: numbersOf(metrics) },
    ...typeof job === "string" && { job: job.slice(0, JOB_MAX) },
    ...isMemory && { memory },
  } as unknown as Metrics;
}
