/**
 * `metrics.jsonl`: what a run measures, a line at a time.
 *
 * [Note: what a kill leaves] Each line is given to the system as it comes, in one call and without
 * waiting for the disk: a program that is killed loses none but one that is being written, and a
 * machine that fails loses what the system had not put on the disk since the last checkpoint.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { isAt } from "../../actors/checkpoints/lock.ts";
import type { Metrics } from "../../actors/options/train_options.ts";
import type { TrainEvent } from "../../actors/run/events.ts";
import type { Plan } from "../../actors/run/plan.ts";
import { inOneLine, quoted } from "../terminal.ts";
import type { KeptComponents } from "./run_folder.ts";

/** Bytes of a line: a record is flat, with a number for each of at most some thousand workers. */
export const LINE_BYTES_MAX: number = 2 ** 20;

const PIECE_BYTES = 2 ** 16;

const NEW_LINE = 10;

/** A line of such a file. */
interface JsonLine {
  readonly record: Readonly<Record<string, unknown>>;
  /** Where the next line begins, in bytes. */
  readonly end: number;
}

/**
 * Reads the whole lines of a file. A last one without its end is being written, or is what a killed
 * program has left: it is not told.
 *
 * @param from where the first line begins, in bytes.
 * @throws {SyntaxError} naming the line, by its place, that is no record or is too long.
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
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as JsonLine["record"];
  }
  throw wrong(path, at, quoted(value));
}

const wrong = (path: string, at: number, received: string) =>
  new SyntaxError(
    `Cannot read ${
      inOneLine(path)
    }: each line must be a JSON object, received ${received} at byte ${at}`,
  );

/** The file of a run under way. */
export interface MetricsFile extends Disposable {
  /**
   * Adds a line.
   *
   * @returns whether the file had to be made again, as it was removed.
   */
  add(metrics: Metrics): boolean;
  /** Makes durable what was added. */
  sync(): void;
}

/**
 * Begins a file.
 *
 * @param announce told in words why no more can be written; the run goes on.
 * @throws {Error} when there is one already, or none can be made.
 */
export function createMetrics(path: string, announce: (line: string) => void): MetricsFile {
  return openFile(Deno.openSync(path, { write: true, createNew: true }), path, 0, announce);
}

/**
 * Goes on with a file after a step: what it says of later ones is cut off, as is what a killed
 * program has left of a line. An evaluation of that step is not added again.
 *
 * @throws {SyntaxError} when a line of it is none.
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
    const { add, ...opened } = openFile(file, path, size, announce);
    return {
      ...opened,
      add(metrics) {
        const isKnown = metrics.type === "evaluation" && metrics.step === afterStep;
        return (!isEvaluated || !isKnown) && add(metrics);
      },
    };
  } catch (error) {
    file.close();
    throw error;
  }
}

function openFile(
  file: Deno.FsFile,
  path: string,
  size: number,
  announce: (line: string) => void,
): MetricsFile {
  const encoder = new TextEncoder();
  let isFailed = false;
  /** What fails once is not tried again: between two lines there would be part of one. */
  const attempt = (what: () => void) => {
    if (isFailed) return;
    try {
      what();
    } catch (error) {
      isFailed = true;
      announce(`Cannot write ${path}: ${(error as Error).message}; training goes on without it`);
      try {
        file.truncateSync(size);
      } catch {
        // Who reads it passes over part of a line at its end.
      }
    }
  };
  file.seekSync(size, Deno.SeekMode.Start);
  return {
    add(metrics) {
      let isRemoved = false;
      attempt(() => {
        isRemoved = !isAt(path, file);
        if (isRemoved) {
          Deno.mkdirSync(dirname(path), { recursive: true });
          const made = Deno.openSync(path, { write: true, createNew: true });
          file.close();
          [file, size] = [made, 0];
          announce(`${path} was removed during the run: it goes on from step ${metrics.step}`);
        }
        const bytes = encoder.encode(JSON.stringify(metrics) + "\n");
        for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
        size += bytes.length;
      });
      return isRemoved;
    },
    sync: () => attempt(() => file.syncDataSync()),
    [Symbol.dispose]: () => file.close(),
  };
}

/** What makes a file one of these. */
export const RUN_FORMAT = "troupe run";

/** Version of what is in it. */
export const RUN_VERSION = 1;

/** The files of a run beside its checkpoints. */
export const RUN_FILES = {
  /** A {@linkcode RunRecord}. */
  record: "run.json",
  /** A record of `Metrics` a line. */
  metrics: "metrics.jsonl",
  /** Steps that were traced and workers that were lost, a line each. */
  timeline: "timeline.jsonl",
  /** The tokenizer that made its tokens, where that is a file. */
  tokenizer: "tokenizer.json",
  /** The model of an ONNX file with what it has learnt, once the run is done. */
  onnx: "trained.onnx",
} as const;

/** Where a run computed, and with which versions. */
export interface RunEnvironment {
  /** Version of Troupe. */
  readonly troupe: string;
  /** Version of Deno. */
  readonly deno: string;
  /** Version of ONNX Runtime; absent on the device that has none. */
  readonly onnxruntime?: string;
  /** As `Deno.build.os` and `Deno.build.arch` say it. */
  readonly os: string;
  readonly arch: string;
  /** Cores of the machine that the program might use. */
  readonly cores: number;
  /** Threads of each worker within an operation. */
  readonly threads: number;
  readonly device: string;
  /** The names of the adapters, of a device that has some. */
  readonly adapter?: string;
}

/** Once that a run was begun or gone on with. */
export interface RunStart {
  /** When, as ISO 8601 has it. */
  readonly at: string;
  /** The step after which it began: 0, or that of the checkpoint from which it went on. */
  readonly afterStep: number;
  /** The checkpoint, where there is one. */
  readonly from?: string;
  /** The arguments of `troupe train`, as they were typed. */
  readonly command: readonly string[];
  readonly environment: RunEnvironment;
}

/** How a run came to its end. */
export interface RunEnd {
  /** When, as ISO 8601 has it. */
  readonly at: string;
  /** Whether it took all its steps, ran out of `--patience`, or was ended by a signal. */
  readonly reason: "finished" | "stopped early" | "interrupted";
  /** Optimizer steps of the whole run. */
  readonly step: number;
  /** Time of this program, in seconds. */
  readonly seconds: number;
  /** SHA-256 of all parameters. */
  readonly weightsHash: string;
  /** The best evaluation, where it was asked for, and its checkpoint. */
  readonly best?: (TrainEvent & { readonly type: "end" })["best"] & object;
}

/** What `run.json` holds. Its paths are for people: they are shown and never opened. */
export interface RunRecord {
  readonly format: typeof RUN_FORMAT;
  readonly version: typeof RUN_VERSION;
  /** The model's name. */
  readonly model: string;
  /** When it was begun, as ISO 8601 has it. */
  readonly started: string;
  /** All flags as they are in the end: given, inherited or default. */
  readonly flags: Readonly<Record<string, unknown>>;
  /** Modules of the user's. */
  readonly parts?: KeptComponents;
  /** What is learnt from; the hash of its file, or of its module, where it has one. */
  readonly data: { readonly name: string; readonly hash?: string };
  /** The schedule; the SHA-256 of its lists as CSV, where it has some. */
  readonly schedule: { readonly name: string; readonly hash?: string };
  /** What was planned. */
  readonly plan: Plan;
  /** Each time that it was begun or gone on with; of very many the first and the last. */
  readonly starts: readonly RunStart[];
  /** Absent while it runs, and where it was killed. */
  readonly end?: RunEnd;
}

const TYPES: readonly unknown[] = ["step", "skip", "evaluation"] satisfies Metrics["type"][];

/** Workers of which a record tells, at most: more than any run has. */
const WORKERS_MAX = 2 ** 16;

/** A record, and where the next begins in the file. */
interface MetricsLine {
  readonly metrics: Metrics;
  /** In bytes; from there a file that has grown is read on. */
  readonly end: number;
}

/**
 * What a run has measured, in the order of its steps; none where there is no file. A last line that
 * is not whole is not told.
 *
 * @param directory the folder of the run.
 * @param from where the first record begins, in bytes.
 * @throws {SyntaxError} when a line is no such record.
 */
export function* readMetrics(directory: string, from = 0): Generator<MetricsLine, void> {
  const path = join(directory, RUN_FILES.metrics);
  using file = openRegular(path);
  if (!file) return;
  for (const { record, end } of readJsonLines(file, path, from)) {
    yield { metrics: metricsOf(record, path), end };
  }
}

/** Opens a file that is there, and none that a link leads to. */
function openRegular(path: string): Deno.FsFile | undefined {
  try {
    return Deno.lstatSync(path).isFile ? Deno.openSync(path) : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** A record with the numbers that it has: what is no finite number is left out. */
function metricsOf(record: Readonly<Record<string, unknown>>, path: string): Metrics {
  const { type, step, memory } = record;
  if (!TYPES.includes(type) || !Number.isSafeInteger(step) || (step as number) < 0) {
    throw new SyntaxError(
      `Cannot read ${inOneLine(path)}: each line must have a type (${
        TYPES.join(", ")
      }) and a step, received ${quoted(record)}`,
    );
  }
  const isMemory = Array.isArray(memory) && memory.length <= WORKERS_MAX &&
    memory.every(Number.isFinite);
  const numbers = Object.entries(record).filter(([, value]) => Number.isFinite(value));
  return {
    ...Object.fromEntries(numbers),
    type,
    ...isMemory && { memory },
  } as unknown as Metrics;
}
