/**
 * The weights and moments of a run: their sizes, and which stage has them.
 *
 * @module
 */

import { cutIntoStages, type ModelParameter, MOMENTS } from "../../../kernels/mod.ts";
import type { Shapes } from "../../checkpoints/checkpoint_format.ts";
import { type HeldState, parameterOf } from "../../checkpoints/tensors/held_state.ts";
import type { EngineOptions } from "./engine.ts";
import { parameterNames } from "./stage_parameters.ts";

/** The sizes of some parameters, and of the moments of those that are trained. */
export function stateShapes(
  parameters: readonly Pick<ModelParameter, "name" | "shape" | "isFrozen">[],
  { stage, isRehearsed }: Pick<EngineOptions, "stage" | "isRehearsed">,
): HeldState["shapes"] {
  // What stands in for kernels has no moments.
  const moments = isRehearsed ? [] : MOMENTS[stage.optimizer.kind];
  const trained = parameters.filter(({ isFrozen }) => !isFrozen);
  const optimizer: Shapes = new Map(
    trained.flatMap(({ name, shape }) =>
      moments.map((moment) => [`${name}.${moment}`, shape] as const)
    ),
  );
  return { model: new Map(parameters.map(({ name, shape }) => [name, shape])), optimizer };
}

/**
 * The state of a run as its stages hold it.
 *
 * @param read reads parts of one stage.
 */
export function heldByStages(
  options: Pick<EngineOptions, "model" | "schedule" | "stage" | "isRehearsed">,
  read: (stage: number, parts: Parameters<HeldState["read"]>[0]) => Promise<Float32Array>,
): HeldState {
  const { model, schedule } = options;
  const stages = new Map(
    cutIntoStages(model, schedule.stages).flatMap((program, stage) =>
      parameterNames(program).map((name) => [name, stage] as const)
    ),
  );
  const holderOf = (name: string) => (stages.get(name) ?? stages.get(parameterOf(name)))!;
  return {
    // Aliases of ties are no parameters of the model: they have one name.
    shapes: stateShapes(model.parameters, options),
    holderOf,
    read: (parts) => read(holderOf(parts[0]!.name), parts),
  };
}
