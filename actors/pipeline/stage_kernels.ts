/**
 * What a worker wants of a stage: its kernels on a device, or what stands in for them in a rehearsal.
 *
 * @module
 */

import type { Stage } from "../../kernels/mod.ts";

/** What runs a stage. */
export type StageKernels = Pick<
  Stage,
  | "isLast"
  | "liveActivations"
  | "weightVersions"
  | "buckets"
  | "memory"
  | "forward"
  | "backward"
  | "recompute"
  | "drop"
  | "rangeOf"
  | "zeroGradients"
  | "sums"
  | "checkGradients"
  | "gradientSquares"
  | "readGradients"
  | "writeGradients"
  | "beginStep"
  | "stepBucket"
  | "optimize"
  | "load"
  | "write"
  | "read"
  | "save"
>;
