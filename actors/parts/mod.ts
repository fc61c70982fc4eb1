/**
 * What training is made of, by name: models, data and optimizers, of Troupe and of others.
 *
 * @module
 */

// Those of Troupe, so that others can be made around them.
export { mnist as MNIST_DATA } from "./built_in/digits.ts";
export { gptModel as GPT_MODEL } from "./built_in/gpt.ts";
export { mlpModel as MLP_MODEL } from "./built_in/mlp.ts";
export { adamw as ADAMW_OPTIMIZER, sgd as SGD_OPTIMIZER } from "./built_in/optimizers.ts";
export {
  supervisor as PIPELINE_SUPERVISOR,
  worker as PIPELINE_WORKER,
} from "./built_in/supervisors.ts";
export { mobyDick as MOBY_DICK_DATA, sotu as SOTU_DATA } from "./built_in/texts.ts";
export * from "./data_part.ts";
export * from "./import_part.ts";
export * from "./model_part.ts";
export * from "./open_task.ts";
export * from "./optimizer_part.ts";
