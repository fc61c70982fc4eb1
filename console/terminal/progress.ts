/**
 * How far a run has come: a line that changes on a terminal, else a line now and then.
 *
 * @module
 */

import type { Task } from "../../actors/parts/mod.ts";
import { print } from "../print.ts";
import { openStatusLine, type StatusLine } from "./status_line.ts";
import { duration, hasChangingLines } from "./terminal.ts";

/** Where a run stands. */
export interface Standing {
  /** Steps taken. */
  readonly step: number;
  /** Those of the whole run. */
  readonly steps: number;
  /** The loss of the last one. */
  readonly loss: number;
  /** What it got through, each second. */
  readonly perSecond: number;
  /** What that is. */
  readonly unit: Task["unit"];
  /** What is left, in seconds; undefined where nobody knows. */
  readonly secondsLeft: number | undefined;
}

/** Tells how far a run has come; disposing of it takes the line that changes away. */
export interface Progress extends Disposable {
  /** A step was taken. */
  step(step: number, loss: number, perSecond: number): void;
}

/** Of the bar between step and loss. */
const BAR = { least: 8, most: 40 } as const;

/**
 * The line that changes: all that there is room for, from what matters most.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const standing = { step: 150, steps: 600, loss: 3.1415, unit: "tokens", perSecond: 12_345 } as const;
 * const at = (columns: number) => progressLine({ ...standing, secondsLeft: 75 }, columns);
 * assert.equal(at(60), "step 150/600  ██░░░░░░░░░  loss 3.142  12345 tokens/s  1m15s");
 * assert.equal(at(40), "step 150/600  loss 3.142  1m15s left");
 * assert.equal(at(21), "150/600  loss 3.142");
 * assert.equal(at(9), "150/600");
 * ```
 */
export function progressLine(standing: Standing, columns: number): string {
  const { step, steps, loss, perSecond, unit, secondsLeft } = standing;
  const done = `${step}/${steps}`, lossIs = `loss ${loss.toFixed(3)}`;
  const speed = `${Math.round(perSecond)} ${unit}/s`;
  const left = secondsLeft === undefined ? [] : [duration(secondsLeft)];
  const inWords = left.map((time) => `${time} left`);
  const [before, behind] = [`step ${done}`, [lossIs, speed, ...left].join("  ")];
  const room = columns - before.length - behind.length - 4;
  if (room >= BAR.least) {
    return `${before}  ${bar(step / steps, Math.min(BAR.most, room))}  ${behind}`;
  }
  const shorter = [
    [before, lossIs, speed, ...inWords],
    [before, lossIs, speed, ...left],
    [before, lossIs, ...inWords],
    [before, lossIs],
    [done, lossIs],
    [done],
  ].map((parts) => parts.join("  "));
  return shorter.find(({ length }) => length <= columns) ?? done.slice(0, columns);
}

const bar = (share: number, columns: number): string => {
  const full = Math.floor(share * columns);
  return "█".repeat(full) + "░".repeat(columns - full);
};

/** Opens the progress of a run. */
export function openProgress(steps: number, unit: Task["unit"]): Progress {
  const every = Math.max(1, Math.round(steps / 12));
  let line: StatusLine | undefined, first: { step: number; at: number } | undefined;
  return {
    step(step, loss, perSecond) {
      if (!hasChangingLines()) {
        if (step % every !== 0 && step !== 1) return;
        const speed = `${Math.round(perSecond)} ${unit}/s`;
        return print(`step ${step}/${steps}  loss ${loss.toFixed(3)}  ${speed}`);
      }
      const at = performance.now();
      first ??= { step, at };
      const each = (at - first.at) / (step - first.step) / 1000;
      const isKnown = step > first.step && step < steps;
      const secondsLeft = isKnown ? each * (steps - step) : undefined;
      const standing = { step, steps, loss, perSecond, unit, secondsLeft };
      line ??= openStatusLine();
      line.show((columns) => progressLine(standing, columns));
    },
    [Symbol.dispose]() {
      line?.[Symbol.dispose]();
      line = undefined;
    },
  };
}
