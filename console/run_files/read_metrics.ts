/**
 * Reads `metrics.jsonl`, while it grows too.
 *
 * @module
 */

import { join } from "node:path";
import type { Metrics } from "../../actors/run/metrics/metrics.ts";
import { inOneLine, quoted } from "../escape.ts";
import { readJsonLines } from "./json_lines.ts";
import { RUN_FILES } from "./run_record.ts";

const TYPES: readonly unknown[] = ["step", "skip", "evaluation"] satisfies Metrics["type"][];

/** Workers of which a record tells, at most: more than any run has. */
const WORKERS_MAX = 2 ** 16;

/** A record, and where the next begins in the file. */
export interface MetricsLine {
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
