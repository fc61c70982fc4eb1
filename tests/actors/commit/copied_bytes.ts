/**
 * What a step of steady state copies between host and device, by the formula.
 *
 * @module
 */

import assert from "node:assert/strict";
import { type CopiedBytes, DTYPE_BYTES, elementCount, stageBorder } from "../../../kernels/mod.ts";
import type { OpenCopy } from "../../../actors/pipeline/stage_copies.ts";
import { compileRun } from "../../../actors/run/compile_run.ts";
import { stageParameters } from "../../../actors/run/engines/stage_parameters.ts";
import type { StageProgram } from "../../../kernels/mod.ts";
import type { Stepped, Steps } from "./steps_by_hand.ts";

const F32 = 4;

/** AdamW's scale, decay, rate and epsilon, for parameters that decay and for those that do not. */
const OPTIMIZER_SCALARS = 2 * 4;

const bytesOf = ({ dtype, shape }: { dtype: keyof typeof DTYPE_BYTES; shape: readonly number[] }) =>
  DTYPE_BYTES[dtype] * elementCount(shape);

/**
 * For each micro-batch its fields, the activation in and the gradient in go up, on the last stage the
 * factor of the loss in its place; the activation or the losses and the gradient out come down. For
 * each step the optimizer's scalars go up, and a number for each parameter comes down for the vote,
 * and once more for the norm. An all-reduce of n elements among p copies takes n down: what others
 * add, and the sums of what this copy adds. Up go the terms of the latter and the sums of the former,
 * on average of all copies 2n(p−1)/p.
 */
function formula(
  { kernels: { buckets }, rank }: OpenCopy,
  program: StageProgram,
  microBatches: number,
  copies: number,
): CopiedBytes {
  const own = program.layers.map((layer) => program.programs[layer.program]!);
  const fields = new Map(own.flatMap(({ fields }) => fields).map((field) => [field.name, field]));
  const { inputs, outputs } = stageBorder(program);
  const fieldBytes = [...fields.values()].reduce((sum, field) => sum + bytesOf(field), 0);
  const [input, output] = [inputs, outputs].map((specs) =>
    specs.reduce((sum, spec) => sum + bytesOf(spec), 0)
  ) as [number, number];
  const elements = buckets.reduce((sum, { length }) => sum + length, 0);
  const up = 2 * elements * (copies - 1) / copies, down = copies > 1 ? elements : 0;
  const norms = stageParameters(program).length * (rank === 0 ? 2 : 1);
  return {
    toDevice: microBatches * (fieldBytes + input + (own.at(-1)!.isLoss ? F32 : output)) +
      F32 * (OPTIMIZER_SCALARS + up),
    toHost: microBatches * (output + input) + F32 * (norms + down),
  };
}

/** Of all copies: a whole number, whose thirds floating point may have rounded. */
const total = (all: readonly CopiedBytes[]): CopiedBytes => ({
  toDevice: Math.round(all.reduce((sum, { toDevice }) => sum + toDevice, 0)),
  toHost: all.reduce((sum, { toHost }) => sum + toHost, 0),
});

/** The copies of each stage must have copied what the formula says, byte for byte. */
export function assertCopied({ workers }: Stepped, { options, schedule }: Steps): void {
  const { programs } = compileRun(options, schedule), { replicas = 1 } = options;
  for (const [stage, program] of programs.entries()) {
    const held = workers.filter(({ all: [copy] }) => copy!.stage === stage);
    const expected = held.map(({ all: [copy] }) =>
      formula(copy!, program, schedule.microBatches, replicas)
    );
    assert.deepEqual(total(held.map(({ copied }) => copied)), total(expected), `stage ${stage}`);
  }
}
