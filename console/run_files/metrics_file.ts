/**
 * `metrics.jsonl`: what a run measures, a line at a time.
 *
 * [Note: what a kill leaves] Each line is given to the system as it comes, in one call and without
 * waiting for the disk: a program that is killed loses none but one that is being written, and a
 * machine that fails loses what the system had not put on the disk since the last checkpoint.
 *
 * @module
 */

import { dirname } from "node:path";
import { isAt } from "../../actors/checkpoints/checkpoint_lock.ts";
import type { Metrics } from "../../actors/run/metrics/metrics.ts";
import { readJsonLines } from "./json_lines.ts";

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
