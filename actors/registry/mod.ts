/**
 * The registry: models, data, optimizers, supervisors and actors by name.
 *
 * @module
 */
// Built-in components, which others can wrap.

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
  type ComponentTypes,
  type DataComponent,
  type DataOptions,
  defineData,
  defineModel,
  defineOptimizer,
  findComponent,
  type FoundComponent,
  importComponent,
  type ImportedComponent,
  type ModelComponent,
  type ModelOptions,
  type OpenedData,
  type OptimizerComponent,
  type OptimizerSettings,
  type Trained,
} from "./component.ts";
export * from "./task.ts";

export {
  builtInNames,
  checkNewComponent,
  type NewComponent,
  openRegistry,
  prepareComponent,
  type PreparedComponent,
  type Registry,
  removeComponent,
  type Verified,
} from "./registry.ts";
export {
  type Chosen,
  type Component,
  COMPONENT_KINDS,
  type ComponentKind,
  packageVersion,
} from "./registry_file.ts";
