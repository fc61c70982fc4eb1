/**
 * Deterministic tests of actors: simulation under a virtual clock, exploration of orders and
 * faults, shrinking, journals and replay.
 *
 * @module
 */

export * from "./actors/simulation/mod.ts";
