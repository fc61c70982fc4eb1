/** Writes checkpoints of states in memory. */

import type { Disk } from "../../../actors/checkpoints/format.ts";
import { heldValues } from "../../../actors/checkpoints/tensors.ts";
import { writeHeld } from "../../../actors/checkpoints/write.ts";
import type { StageState } from "../../../kernels/internal.ts";
import type { ModelParameter } from "../../../kernels/mod.ts";

/** Writes a checkpoint; returns the path of its folder. */
export async function writeCheckpoint(
  directory: string,
  checkpoint: {
    readonly step: number;
    readonly state: StageState;
    readonly parameters: readonly Pick<ModelParameter, "name" | "shape">[];
    readonly config: Readonly<Record<string, unknown>>;
  },
  disk?: Disk,
): Promise<string> {
  const { step, state, parameters, config } = checkpoint;
  const shapes = new Map(parameters.map(({ name, shape }) => [name, shape]));
  const held = heldValues(state, shapes);
  return (await writeHeld(directory, { step, state: held, config }, disk)).path;
}

/** Makes the weights with these names, and two moments of each. */
export const stateWith = (
  names: readonly string[],
  weight: (name: string, nth: number) => Float32Array,
  moment: (name: string, nth: number, isSecond: 0 | 1) => Float32Array,
): StageState => ({
  weights: new Map(names.map((name, n) => [name, weight(name, n)])),
  moments: new Map(names.flatMap((name, n) => [
    [`${name}.exp_avg`, moment(name, n, 0)],
    [`${name}.exp_avg_sq`, moment(name, n, 1)],
  ])),
});
