/**
 * Events of Chrome's trace format, which Perfetto reads: as much of it as is written.
 *
 * @module
 */

/** Values of an event, as a viewer shows them. */
export type Args = Readonly<Record<string, string | number | readonly number[]>>;

/** What every event has. */
interface Common {
  /** What a viewer calls it. */
  readonly name: string;
  /** The process: 0 the supervisor, r + 1 the data-parallel replica r. */
  readonly pid: number;
  /** The track in it: the worker, counted over all replicas. */
  readonly tid: number;
}

/** Something on a track, or about it. Times are in microseconds since the trace began. */
export type ChromeEvent =
  /** Says what a process, a track or the whole trace is. */
  | Common & { readonly ph: "M"; readonly args: Args }
  /** A piece of work, or time without any (`cat` is `wait`). */
  | Common & {
    readonly ph: "X";
    readonly cat: string;
    readonly ts: number;
    readonly dur: number;
    readonly args: Args;
  }
  /** An output leaves the work that lies there, and arrives at that which needs it. */
  | Common & { readonly ph: "s"; readonly cat: "flow"; readonly id: number; readonly ts: number }
  | Common & {
    readonly ph: "f";
    readonly bp: "e";
    readonly cat: "flow";
    readonly id: number;
    readonly ts: number;
  }
  /** Values that a viewer draws as a curve. */
  | Common & { readonly ph: "C"; readonly ts: number; readonly args: Args }
  /** A moment: for the whole trace, or for its track. */
  | Common & {
    readonly ph: "i";
    readonly s: "g" | "t";
    readonly cat: string;
    readonly ts: number;
    readonly args: Args;
  };

/** Name of the first event of a trace of Troupe, which says what it is of. */
export const TROUPE_EVENT = "troupe_trace";

/** Version of what the events of Troupe say. */
export const TRACE_VERSION = 1;

/** The track of the supervisor. */
export const SUPERVISOR = { pid: 0, tid: 0 } as const;

/** What a trace is of. */
export interface TraceFacts {
  /** The model's name. */
  readonly model: string;
  /** The schedule's name. */
  readonly schedule: string;
  /** Where actors ran. */
  readonly runtime: string;
  /** Data-parallel replicas. */
  readonly replicas: number;
  /** For each worker of one replica the stages that it holds. */
  readonly stagesOf: readonly (readonly number[])[];
  /** When the trace began, in milliseconds since the epoch. */
  readonly began: number;
  /** What computes, and what the stages are; not told by the first traces. */
  readonly about?: TracedStages | undefined;
}

/** What computes in a traced run, and for each of its stages what costs are costs of. */
export interface TracedStages {
  /** What computes. */
  readonly device: string;
  /** Trained numbers. */
  readonly parameters: readonly number[];
  /** Share of the model's estimated work, 0 to 1. */
  readonly shares: readonly number[];
  /** Bytes that a micro-batch keeps from F to B. */
  readonly activationBytes: readonly number[];
  /** Samples of a micro-batch; absent in older traces. */
  readonly microBatch?: number;
}
