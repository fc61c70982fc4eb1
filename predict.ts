/**
 * Predictions with trained models, in Deno, Node and pages: the module needs no API of Node or Deno.
 *
 * @module
 */

export { defineModel, type ModelComponent } from "./actors/options/model_definition.ts";
export { type LoadedModel, loadModel, predict } from "./actors/run/load_model.ts";
