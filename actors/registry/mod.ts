/**
 * What training is made of, by name: models, data and optimizers, of Troupe and of others.
 *
 * @module
 */
// Those of Troupe, so that others can be made around them.

export { mnist as MNIST_DATA } from "./built_in_data.ts";
export { gptModel as GPT_MODEL } from "./built_in_models.ts";
export { mlpModel as MLP_MODEL } from "./built_in_models.ts";
export { adamw as ADAMW_OPTIMIZER, sgd as SGD_OPTIMIZER } from "./built_in_models.ts";
export { supervisor as PIPELINE_SUPERVISOR, worker as PIPELINE_WORKER } from "./built_in_models.ts";
export { mobyDick as MOBY_DICK_DATA, sotu as SOTU_DATA } from "./built_in_data.ts";
export { type DataOptions, type DataPart, defineData, type OpenedData } from "./part.ts";
export { findPart, type FoundPart, type ImportedPart, importPart, type PartTypes } from "./part.ts";
export {
  type BuiltModel,
  defineModel,
  type ModelOptions,
  type ModelPart,
  type Trained,
} from "./part.ts";
export * from "./task.ts";
export { defineOptimizer, type OptimizerPart, type OptimizerSettings } from "./part.ts";

export { builtInNames } from "./registry.ts";
export { type Part, PART_KINDS, type PartKind } from "./registry_file.ts";
export {
  checkNewPart,
  type NewPart,
  type PreparedPart,
  preparePart,
  removePart,
} from "./registry.ts";
export { type Chosen, packageVersion } from "./registry_file.ts";
export { openRegistry, type Registry, type Verified } from "./registry.ts";
