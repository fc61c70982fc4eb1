/** The skip edges of models, for tests of any architecture. */

import {
  compileModel,
  type Model,
  partition,
  type SkipEdge,
  skipEdges,
} from "../../kernels/mod.ts";

/** The skip edges of a model in so many stages of nearly equal cost. */
export function edgesOf({ model }: { readonly model: Model }, stages: number): SkipEdge[] {
  const program = compileModel(model, "none");
  return skipEdges(program, partition(program.costs, stages));
}
