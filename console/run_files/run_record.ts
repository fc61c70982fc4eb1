/**
 * `run.json`: what a run was told, where it ran, and how it went. The files of a run are named here.
 *
 * @module
 */

import type { Plan } from "../../actors/run/plan.ts";
import type { TrainEvent } from "../../actors/run/train_event.ts";
import type { KeptParts } from "../train/run_parts.ts";

/** What makes a file one of these. */
export const RUN_FORMAT = "troupe run";

/** Version of what is in it. */
export const RUN_VERSION = 1;

/** The files of a run beside its checkpoints. */
export const RUN_FILES = {
  /** A {@linkcode RunRecord}. */
  record: "run.json",
  /** A record of `Metrics` a line. */
  metrics: "metrics.jsonl",
  /** Steps that were traced and workers that were lost, a line each. */
  timeline: "timeline.jsonl",
  /** The tokenizer that made its tokens, where that is a file. */
  tokenizer: "tokenizer.json",
  /** The model of an ONNX file with what it has learnt, once the run is done. */
  onnx: "trained.onnx",
} as const;

/** Where a run computed, and with which versions. */
export interface RunEnvironment {
  /** Version of Troupe. */
  readonly troupe: string;
  /** Version of Deno. */
  readonly deno: string;
  /** Version of ONNX Runtime; absent on the device that has none. */
  readonly onnxruntime?: string;
  /** As `Deno.build.os` and `Deno.build.arch` say it. */
  readonly os: string;
  readonly arch: string;
  /** Cores of the machine that the program might use. */
  readonly cores: number;
  /** Threads of each worker within an operation. */
  readonly threads: number;
  readonly device: string;
  /** The names of the adapters, of a device that has some. */
  readonly adapter?: string;
}

/** Once that a run was begun or gone on with. */
export interface RunStart {
  /** When, as ISO 8601 has it. */
  readonly at: string;
  /** The step after which it began: 0, or that of the checkpoint from which it went on. */
  readonly afterStep: number;
  /** The checkpoint, where there is one. */
  readonly from?: string;
  /** The arguments of `troupe train`, as they were typed. */
  readonly command: readonly string[];
  readonly environment: RunEnvironment;
}

/** How a run came to its end. */
export interface RunEnd {
  /** When, as ISO 8601 has it. */
  readonly at: string;
  /** Whether it took all its steps, ran out of `--patience`, or was ended by a signal. */
  readonly reason: "finished" | "stopped early" | "interrupted";
  /** Optimizer steps of the whole run. */
  readonly step: number;
  /** Time of this program, in seconds. */
  readonly seconds: number;
  /** SHA-256 of all parameters. */
  readonly weightsHash: string;
  /** The best evaluation, where it was asked for, and its checkpoint. */
  readonly best?: (TrainEvent & { readonly type: "end" })["best"] & object;
}

/** What `run.json` holds. Its paths are for people: they are shown and never opened. */
export interface RunRecord {
  readonly format: typeof RUN_FORMAT;
  readonly version: typeof RUN_VERSION;
  /** The model's name. */
  readonly model: string;
  /** When it was begun, as ISO 8601 has it. */
  readonly started: string;
  /** All flags as they are in the end: given, inherited or default. */
  readonly flags: Readonly<Record<string, unknown>>;
  /** Modules of the user's. */
  readonly parts?: KeptParts;
  /** What is learnt from; the hash of its file, or of its module, where it has one. */
  readonly data: { readonly name: string; readonly hash?: string };
  /** The schedule; the SHA-256 of its lists as CSV, where it has some. */
  readonly schedule: { readonly name: string; readonly hash?: string };
  /** What was planned. */
  readonly plan: Plan;
  /** Each time that it was begun or gone on with; of very many the first and the last. */
  readonly starts: readonly RunStart[];
  /** Absent while it runs, and where it was killed. */
  readonly end?: RunEnd;
}
