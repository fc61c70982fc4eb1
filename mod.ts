/**
 * Troupe: message-driven pipeline-parallel training.
 *
 * A model is a list of layers; `train()` cuts it into stages, makes each worker an actor, and
 * streams micro-batches through under a schedule. What a script needs is exported here; the rooms
 * have entries of their own: `@troupe/troupe/actors`, `/schedules` and `/kernels`.
 *
 * @module
 */

export * from "./actors/mod.ts";
export * from "./kernels/mod.ts";
export * from "./schedules/mod.ts";
