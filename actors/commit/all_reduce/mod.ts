/**
 * The all-reduce of gradients among the copies of a stage.
 *
 * @module
 */

export * from "./open_reducer.ts";
export * from "./reducer.ts";
