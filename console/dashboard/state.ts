/**
 * What the page of a run is told, as plain data.
 *
 * @module
 */

import type { Metrics } from "../../actors/options/train_options.ts";

/** How a run stands. */
type RunStatus = "starting" | "running" | "finished" | "interrupted" | "failed" | "gone";

/** What a page is told: all of it when it opens, and then what has changed. */
export interface News {
  /** What the run is. */
  readonly run?: RunFacts;
  /** How it stands. */
  readonly status?: StatusView;
  /** Steps, thinned out where there are many. */
  readonly metrics?: Tail<Metrics>;
  /** Losses on held-out data, thinned out likewise. */
  readonly evaluations?: Tail<Metrics>;
  /** What went wrong, and what was saved, the last of it. */
  readonly events?: Tail<EventView>;
  /** What each worker holds and has lived through, by its number. */
  readonly workers?: readonly WorkerView[];
  /** Traced steps. */
  readonly traces?: TracesNews;
}

/** A list from some place on: what was there from that place on is no longer so. */
export interface Tail<T> {
  /** The place. */
  readonly from: number;
  /** What stands there, and after it. */
  readonly entries: readonly T[];
}

/** Traced steps that are new, and the steps of all that are kept: of the others none is. */
export interface TracesNews {
  /** The steps of all, in order. */
  readonly kept: readonly number[];
  /** Those that are new. */
  readonly added: readonly TraceView[];
}

/** How a run stands, in words. */
export interface StatusView {
  /** In one word. */
  readonly status: RunStatus;
  /** Why it failed, or where its checkpoint is. */
  readonly note?: string;
  /** The last step, and that at which it is to end. */
  readonly step: number;
  /** That at which it is to end. */
  readonly steps: number;
}

/** What does not change while it runs. */
export interface RunFacts {
  /** What it is called: its folder or its model. */
  readonly title: string;
  /** The schedule's name. */
  readonly schedule: string;
  /** What it predicts: tokens, samples; or just predictions. */
  readonly unit: string;
  /** When it began, in milliseconds since the epoch. */
  readonly started: number;
  /** The command that shows it again, where it has a folder. */
  readonly command?: string;
  /** The workers by their number: those of the first data-parallel replica first. */
  readonly workers: readonly WorkerFacts[];
  /** Fill and text colours of an action by kind, stage and pipe, such as `F2.0`. */
  readonly inks: Readonly<Record<string, readonly [fill: string, text: string]>>;
  /** For each micro-batch of a replica the pipe that computes it. */
  readonly pipeOf: readonly number[];
  /** Tables of names and values. */
  readonly tables: readonly FactTable[];
}

/** A worker of the plan. */
interface WorkerFacts {
  /** Its data-parallel replica. */
  readonly replica: number;
  /** The stages that it holds. */
  readonly stages: readonly number[];
}

/** A table with a title. */
export interface FactTable {
  /** What it is about. */
  readonly title: string;
  /** Names and values. */
  readonly rows: readonly (readonly [name: string, value: string])[];
}

/** What a worker did, or was to do: name, start and end in milliseconds of the step. */
export type Span = readonly [name: string, start: number, end: number];

/** Time in which a worker did nothing, and why. */
type Gap = readonly [start: number, end: number, cause: string];

/** One traced step. */
export interface TraceView {
  /** The step. */
  readonly step: number;
  /** Its length from the first start to the last end, in milliseconds. */
  readonly length: number;
  /** For each worker what it did. */
  readonly workers: readonly WorkerStep[];
  /** For each worker what the schedule would have had it do when, at the mean costs of this step. */
  readonly planned: readonly (readonly Span[])[];
}

/** What a worker did in a step. */
export interface WorkerStep {
  /** All that it did, in order. */
  readonly spans: readonly Span[];
  /** When it did nothing. */
  readonly gaps: readonly Gap[];
  /** Its time at work on actions, in milliseconds. */
  readonly busy: number;
  /** Its time in the all-reduce and the optimizer. */
  readonly update: number;
  /** The most messages of data that waited in its mailbox. */
  readonly mailbox?: number;
  /** The forwards that it computed, in micro-batches. */
  readonly forwards: number;
}

/** What a worker holds, and what it has lived through. */
export interface WorkerView {
  /** Bytes that it holds. */
  readonly memoryBytes?: number;
  /** How often it was lost and started again. */
  readonly restarts: number;
}

/** Something that happened beside the steps. */
export interface EventView {
  /** What kind of thing. */
  readonly kind: "failure" | "checkpoint" | "resumed";
  /** The step that it followed. */
  readonly step: number;
  /** When, in milliseconds since the epoch. */
  readonly time: number;
  /** The worker, where it was one. */
  readonly worker?: number;
  /** In words. */
  readonly text: string;
}
