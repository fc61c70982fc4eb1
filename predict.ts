/**
 * Predictions with trained models, also in pages: nothing in it needs Node or Deno.
 *
 * @module
 */

export { defineModel, type ModelComponent } from "./actors/options/model_definition.ts";
export { type LoadedModel, loadModel, predict } from "./actors/run/load_model.ts";
