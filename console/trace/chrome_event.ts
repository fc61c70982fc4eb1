/**
 * Events of Chrome's trace format, which Perfetto reads: as much of it as is written.
 *
 * @module
 */

/** Values of an event, as a viewer shows them. */
export type Args = Readonly<Record<string, string | number | readonly number[]>>;

/** Something on a track, or about it. Times are in microseconds since the trace began. */
export interface ChromeEvent {
  /** Its kind. `M` names a process, a track or the whole trace; `X` is a piece of work, or time without
   * any (`cat` is `wait`); an output leaves one (`s`) and arrives at another (`f`); `C` are values that a
   * viewer draws as a curve; `i` is a moment. */
  readonly ph: "M" | "X" | "s" | "f" | "C" | "i";
  /** The name that a viewer shows. */
  readonly name: string;
  /** The process: 0 the supervisor, r + 1 the data-parallel replica r. */
  readonly pid: number;
  /** The track in it: the worker, counted over all replicas. */
  readonly tid: number;
  readonly cat?: string;
  readonly ts?: number;
  readonly dur?: number;
  readonly args?: Args;
  /** Joins the ends of a flow. */
  readonly id?: number;
  /** An arrival belongs to the work around it. */
  readonly bp?: "e";
  /** A moment of the whole trace, or of its track. */
  readonly s?: "g" | "t";
}

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
  /** What computes, and the stages; absent where nothing computed. */
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
