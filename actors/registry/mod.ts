/**
 * What training is made of, by name: models, data and optimizers, of Troupe and of others.
 *
 * @module
 */
// Those of Troupe, so that others can be made around them.

export {
  mnist as MNIST_DATA,
  mobyDick as MOBY_DICK_DATA,
  sotu as SOTU_DATA,
} from "./built_in_data.ts";
export {
  adamw as ADAMW_OPTIMIZER,
  gptModel as GPT_MODEL,
  mlpModel as MLP_MODEL,
  sgd as SGD_OPTIMIZER,
  supervisor as PIPELINE_SUPERVISOR,
  worker as PIPELINE_WORKER,
} from "./built_in_models.ts";
export {
  type BuiltModel,
  type DataOptions,
  type DataPart,
  defineData,
  defineModel,
  defineOptimizer,
  findPart,
  type FoundPart,
  type ImportedPart,
  importPart,
  type ModelOptions,
  type ModelPart,
  type OpenedData,
  type OptimizerPart,
  type OptimizerSettings,
  type PartTypes,
  type Trained,
} from "./part.ts";
export * from "./task.ts";

export {
  builtInNames,
  checkNewPart,
  type NewPart,
  openRegistry,
  type PreparedPart,
  preparePart,
  type Registry,
  removePart,
  type Verified,
} from "./registry.ts";
export {
  type Chosen,
  packageVersion,
  type Part,
  PART_KINDS,
  type PartKind,
} from "./registry_file.ts";
