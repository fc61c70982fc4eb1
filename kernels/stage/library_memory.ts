/**
 * What the library that computes takes for itself, beside the tensors of a stage.
 *
 * @module
 */

import type { StageProgram } from "../compile/stage_program.ts";
import { type DeviceName, DEVICES } from "../devices/table.ts";
import { transientBytes } from "../onnx/transient.ts";
import { stepLengths } from "../optimizer/optimizer.ts";
import { stepModel } from "../optimizer/step_model.ts";
import { modelsToCompile, overwritesToCompile } from "./open_stage.ts";
import { planResident } from "./stage_memory.ts";
import type { StageOptions } from "./stage_options.ts";

/** Bytes that a library takes for the stages of one worker, which runs one model at a time. */
export interface LibraryBytes {
  /** Values between the operations of the model for which they are most. */
  readonly transient: number;
  /** Compiled models, and what binds them to tensors. */
  readonly sessions: number;
}

/** A compiled model without constants, and how many times it holds its bytes, constants above all. */
const SESSION_BYTES = 2 ** 18, SESSION_COPIES = 3;

/** What a bucket of the optimizer takes that is bound: a dozen tensors with their names. */
const BUCKET_BYTES = 10 * 2 ** 10;

/** What is known of models, for each device. */
const known = new Map<DeviceName, WeakMap<Uint8Array, number>>();

/** Bytes of the values between the operations of a model as a device computes it. */
function transientOn(device: DeviceName, model: Uint8Array): number {
  const transients = known.get(device) ?? new WeakMap<Uint8Array, number>();
  known.set(device, transients);
  const bytes = transients.get(model) ?? transientBytes(DEVICES[device].prepare(model));
  transients.set(model, bytes);
  return bytes;
}

/**
 * Plans what a library takes for stages that one worker opens. Pure: nothing is compiled.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, compileModel, gpt2, planLibrary } from "@troupe/troupe/kernels";
 *
 * const stage = compileModel(gpt2({ layers: 1, hidden: 8, heads: 1, seq: 64, vocab: 1000 }, 1), "none");
 * const options = { optimizer: ADAMW_DEFAULTS, backward: "whole" } as const;
 * const { transient } = planLibrary([stage], options, "native");
 * assert.ok(transient >= 4 * 64 * 1000); // the logits at least
 * ```
 */
export function planLibrary(
  stages: readonly StageProgram[],
  options: StageOptions,
  device: DeviceName,
): LibraryBytes {
  let transient = 0, sessions = 0;
  const add = (model: Uint8Array) => {
    transient = Math.max(transient, transientOn(device, model));
    sessions += SESSION_BYTES + SESSION_COPIES * model.byteLength;
  };
  const { hasFreeViews } = DEVICES[device];
  for (const stage of stages) {
    for (const program of stage.programs) {
      for (const model of Object.values(modelsToCompile(program, options))) add(model);
      for (const model of overwritesToCompile(program, options)) add(model);
    }
    const { store, norms: { pieces } } = planResident(stage, { ...options, hasFreeViews });
    for (const length of stepLengths(store)) {
      add(stepModel(length, options.optimizer, store.master !== undefined));
    }
    // Their models have a few operations, and hold nothing in between but a piece in FP32.
    sessions += new Set(pieces.map(({ length }) => length)).size * SESSION_BYTES;
    sessions += store.buckets.length * BUCKET_BYTES;
  }
  return { transient, sessions };
}
