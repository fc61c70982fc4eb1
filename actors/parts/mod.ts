/**
 * What training is made of, by name: models, data and optimizers, of Troupe and of others.
 *
 * @module
 */

export {
  supervisor as PIPELINE_SUPERVISOR,
  worker as PIPELINE_WORKER,
} from "./built_in/supervisors.ts";
export * from "./data_part.ts";
export * from "./import_part.ts";
export * from "./model_part.ts";
export * from "./open_task.ts";
export * from "./optimizer_part.ts";
