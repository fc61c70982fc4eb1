/**
 * Messages to pages, as plain data.
 *
 * @module
 */

import type { Metrics } from "../../actors/options/train_options.ts";

/** Status of a run. */
type RunStatus = "starting" | "running" | "finished" | "interrupted" | "failed" | "gone";

/** State for a page: everything when it opens, then the changes. */
export interface Updates {
  /** The run. */
  readonly run?: RunFacts;
  /** Its status. */
  readonly status?: StatusView;
  /** Steps, thinned out if there are many. */
  readonly metrics?: Tail<StepRow>;
  /** Losses on held-out data, thinned out if there are many. */
  readonly evaluations?: Tail<Metrics>;
  /** The last failures, joined workers, checkpoints and resumptions. */
  readonly events?: Tail<EventView>;
  /** Memory and restarts of each worker. */
  readonly workers?: readonly WorkerView[];
  /** Traced steps. */
  readonly traces?: TracesUpdate;
}

/** Metrics of a step; with jobs the mean of their losses and the sum of their speeds. */
export interface StepRow extends Metrics {
  /** The curves of each job that runs in it. */
  readonly jobs?: Readonly<Record<string, { readonly [K in CurveKey]: number | undefined }>>;
}

/** The metrics that have a chart. */
export type CurveKey = "loss" | "tokensPerSecond" | "gradNorm" | "learningRate";

/** The end of a list, which replaces all entries from an index on. */
export interface Tail<T> {
  /** First replaced index. */
  readonly from: number;
  /** Entries from this index on. */
  readonly entries: readonly T[];
}

/** New traced steps, and the steps of all kept ones. */
export interface TracesUpdate {
  /** Steps of all kept traces, in order. */
  readonly kept: readonly number[];
  /** New traces. */
  readonly added: readonly TraceView[];
}

/** Status and progress of a run. */
export interface StatusView {
  /** Status. */
  readonly status: RunStatus;
  /** Reason of a failure, or another note. */
  readonly note?: string;
  /** Last step taken. */
  readonly step: number;
  /** Steps of the whole run. */
  readonly steps: number;
}

/** Properties of a run that do not change. */
export interface RunFacts {
  /** Title: the folder or the model. */
  readonly title: string;
  /** Name of the schedule. */
  readonly schedule: string;
  /** Unit of predictions: tokens, samples or predictions. */
  readonly unit: string;
  /** Unit of the loss, if it is known. */
  readonly lossUnit?: string | undefined;
  /** Start in milliseconds since the epoch. */
  readonly started: number;
  /** Command that shows the run again, if it has a folder. */
  readonly command?: string;
  /** Workers by number: those of the first data-parallel replica first. */
  readonly workers: readonly WorkerFacts[];
  /** Fill and text colours of an action by kind, stage and pipeline, such as `F2.0`. */
  readonly inks: Readonly<Record<string, readonly [fill: string, text: string]>>;
  /** Pipeline of each micro-batch of a replica. */
  readonly pipelineOf: readonly number[];
  /** Tables of names and values. */
  readonly tables: readonly FactTable[];
}

/** A worker and its stages. */
interface WorkerFacts {
  /** Data-parallel replica. */
  readonly replica: number;
  /** Stages. */
  readonly stages: readonly number[];
}

/** A table with a title. */
export interface FactTable {
  /** Title. */
  readonly title: string;
  /** Names and values. */
  readonly rows: readonly (readonly [name: string, value: string])[];
}

/** An action: name, start and end in milliseconds of the step. */
export type Span = readonly [name: string, start: number, end: number];

/** Idle time of a worker and its cause. */
type Gap = readonly [start: number, end: number, cause: string];

/** A traced step. */
export interface TraceView {
  /** The step. */
  readonly step: number;
  /** Milliseconds from the first start to the last end. */
  readonly length: number;
  /** Actions of each worker. */
  readonly workers: readonly WorkerStep[];
  /** Expected actions of each worker, at the mean costs of this step. */
  readonly expected: readonly (readonly Span[])[];
}

/** A worker in a step. */
export interface WorkerStep {
  /** Actions in order. */
  readonly spans: readonly Span[];
  /** Idle times. */
  readonly gaps: readonly Gap[];
  /** Milliseconds of actions. */
  readonly busy: number;
  /** Milliseconds of the all-reduce and the optimizer. */
  readonly update: number;
  /** Maximum number of data messages in its mailbox. */
  readonly mailbox?: number;
  /** Number of forwards. */
  readonly forwards: number;
}

/** State of a worker. */
export interface WorkerView {
  /** Bytes of memory. */
  readonly memoryBytes?: number;
  /** Number of restarts. */
  readonly restarts: number;
}

/** An event of a run. */
export interface EventView {
  /** Kind. */
  readonly kind: "failure" | "joined" | "checkpoint" | "resumed";
  /** Last step before the event. */
  readonly step: number;
  /** Time in milliseconds since the epoch. */
  readonly time: number;
  /** The worker, if it is about one. */
  readonly worker?: number;
  /** Description. */
  readonly text: string;
}
