/**
 * The messages of a training run, with or without flushes. A change that an older peer cannot read
 * raises the version.
 *
 * One step: supervisor —Begin→ all workers; —Inject→ worker of stage 0 → F → Activation → … → last
 * stage: F, Loss and B → Gradient → … → stage 0: B, Credit → supervisor injects the next. A step has
 * credits only for micro-batches that are not injected at its start. A finite Loss is sent with the next
 * message of its worker, which wakes the supervisor less often.
 *
 * With a flush, a copy of a stage votes with GradientsReady after its last B. The supervisor answers
 * with Reduce (add the gradients of all copies), and after all votes with Commit (step the optimizer)
 * or Abort. Reduced and StepDone close the step. If stages have one copy, and neither ties nor buddies,
 * each worker sends Reduce to itself, and its votes with Reduced.
 *
 * Without flushes, a stage steps its weights by itself, and StepDone reports all updates of a step,
 * while later steps have begun. Drain empties the pipe, and Drained reports that it is empty.
 *
 * The states in which a receiver takes each message are in `worker.ts` and `supervisor.ts`.
 *
 * @module
 */

import type {
  Batch,
  MessageArray,
  StageMemory,
  StageValues,
  TensorPart,
} from "../../kernels/mod.ts";
import type { StageState } from "../../kernels/internal.ts";
import type { Part } from "../../schedules/mod.ts";
import type { ShardOrder, WrittenShard } from "../checkpoints/read.ts";
import type { ReduceMessage } from "../gradients/all_reduce.ts";
import type { CopyDigest, GradientSquares } from "../gradients/commit.ts";
import type { ActorRef, Down, Failure, Handlers, Message } from "../runtime/mod.ts";
import type { LinkMessage } from "./links.ts";
import type {
  Doubt,
  MicroBatchShare,
  PolicyData,
  StepOutcome,
  StepPlan,
  StepRequest,
  TracedAction,
} from "./step.ts";

/** For each state of an actor, the messages that it takes. */
export type StateTable<S extends string, M extends Message> = {
  readonly [state in S]?: readonly M["type"][];
};

/** The beginning of every refusal, which is a bug of the sender or of the receiver. */
export const REFUSAL = "Cannot handle";

/**
 * Returns handlers that throw, and so end the actor, if a message arrives in a state that does not
 * take it.
 *
 * @param who The actor, for errors, such as `worker`.
 * @param table The messages of each state.
 * @param state Returns the current state.
 * @param types All messages of the protocol; a message of no state is always refused.
 * @param over States in which other messages are dropped, because they were sent earlier.
 * @param drop Called with the type of each that is dropped.
 * @throws {TypeError} if a message of a state has no handler.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * let state: "shut" | "open" = "shut";
 * const table = { shut: ["Open"], open: ["Enter"] } as const;
 * const door = guarded<{ type: "Open" } | { type: "Enter" }, "shut" | "open">(
 *   "door",
 *   table,
 *   () => state,
 *   ["Open", "Enter"],
 *   { Open: () => void (state = "open"), Enter: () => {} },
 * );
 * assert.throws(() => door.Enter({ type: "Enter" }), {
 *   message: "Cannot handle Enter: the door must be open, received it while shut",
 * });
 * door.Open({ type: "Open" });
 * door.Enter({ type: "Enter" });
 * ```
 */
export function guarded<M extends Message, S extends string>(
  who: string,
  table: StateTable<S, M>,
  state: () => S,
  types: readonly M["type"][],
  handlers: Partial<Handlers<M>>,
  over: readonly S[] = [],
  drop: (type: M["type"]) => void = () => {},
): Handlers<M> {
  const statesOf = (type: M["type"]) =>
    (Object.keys(table) as S[]).filter((one) => table[one]!.includes(type));
  const refuse = (type: M["type"]): never => {
    const right = statesOf(type).join(" or ") || "another one";
    const received = `it while ${state()}`;
    throw new Error(`${REFUSAL} ${type}: the ${who} must be ${right}, received ${received}`);
  };
  const entries = types.map((type) => {
    const meaningful = new Set(statesOf(type));
    const handle = handlers[type] as ((message: Message) => void | Promise<void>) | undefined;
    if (!handle && meaningful.size > 0) {
      throw new TypeError(`Cannot make a ${who}: ${type} must have a handler, received none`);
    }
    return [type, (message: Message) => {
      if (handle && meaningful.has(state())) return handle(message);
      return over.includes(state()) ? drop(type) : refuse(type);
    }];
  });
  return Object.fromEntries(entries) as Handlers<M>;
}

/** Version of these messages. */
export const PROTOCOL_VERSION = 15;

/** The messages between workers, which an emulated link may delay. */
export type PeerMessage =
  & {
    /** The digest of its arrays at the sender; absent unless messages are verified. */
    readonly checksum?: number;
    readonly stage: number;
  }
  & (
    | (
      & {
        readonly microBatch: number;
        /** The part of the micro-batch; absent if it is for all parts, as in an evaluation. */
        readonly part?: Part;
        readonly tensor: StageValues;
      }
      & (
        /**
         * Brings the output of the stage before with the fields of the micro-batch that this stage
         * and later ones read, or the named values of an earlier stage. F runs after the last of
         * these messages.
         */
        | { readonly type: "Activation"; readonly fields: Batch; readonly isEvaluation: boolean }
        /**
         * Brings the gradient of the output of stage `stage`, or of a part of it; or the gradient
         * of its named values, from the next stage that uses them.
         */
        | { readonly type: "Gradient" }
      )
    )
    | (
      & { readonly round: number; readonly rank: number }
      & (
        /** Brings a part of the all-reduce of stage `stage` to its copy `rank`. */
        | { readonly type: "ReducePart"; readonly part: ReduceMessage }
        /** Brings the summed gradients of stage `stage` to its buddy, which steps a mirror of it. */
        | { readonly type: "Mirror"; readonly values: MessageArray }
        /** Brings the gradient of another parameter of a tie, for `name` in copy `rank` of stage `stage`. */
        | {
          readonly type: "TieGradient";
          readonly name: string;
          /** Its place among the tied parameters; absent if there are two. */
          readonly from?: number;
          readonly values: MessageArray;
        }
      )
    )
  );

/** The messages to a worker of the pipeline. */
export type WorkerMessage =
  | PeerMessage
  /** Introduces the other actors, as the first message; the answer is Ready. */
  | {
    readonly type: "Connect";
    readonly supervisor: ActorRef<SupervisorMessage>;
    readonly workers: readonly ActorRef<WorkerMessage>[];
  }
  /**
   * Begins a step. Inputs that arrived earlier from faster workers have waited for it. Micro-batches
   * are counted from 0 since the pipe was empty.
   */
  | Pick<StepPlan, "updates" | "dropout"> & Pick<StepRequest, "jobs"> & {
    readonly type: "Begin";
    /** The number of steps tried; a step that is tried again has another round. */
    readonly round: number;
    readonly share: MicroBatchShare;
    /** The policy of this step, if it is not that of `WorkerInit`. */
    readonly policy?: PolicyData | undefined;
    /** For each micro-batch of the share, the factor of its loss. */
    readonly lossScales: readonly number[];
  }
  /** Brings a micro-batch to stage 0. Fields that later stages read travel with the activations. */
  | {
    readonly type: "Inject";
    readonly microBatch: number;
    readonly fields: Batch;
    /** True for a forward only, without kept activations and gradients. */
    readonly isEvaluation: boolean;
  }
  /** To itself: runs the action that the policy picks, after all messages that have arrived. */
  | { readonly type: "Dispatch" }
  /** Adds the gradients of all copies of these stages; to itself, if they have one copy. */
  | { readonly type: "Reduce"; readonly stages: readonly number[] }
  /** Steps the optimizer, bucket by bucket, when their sums are there. */
  | {
    readonly type: "Commit";
    /** The optimizer step, from 1. */
    readonly update: number;
    readonly learningRate: number;
    readonly gradientScale: number;
    /** For each job of the step, the factor of its gradients, or null if it is not stepped. */
    readonly jobs?: readonly (number | null)[] | undefined;
  }
  /** Ends the step on all workers without a change of weights. */
  | { readonly type: "Abort" }
  /**
   * Ends the work of a survivor after the loss of another worker: a step that is not committed is
   * dropped, a committed one is ended. Then only its state can be read. The answer is Frozen.
   */
  | { readonly type: "Freeze" }
  /** Asks for the digests of weights and moments; the answer is Digested. */
  | { readonly type: "Digest" }
  /** Runs the remaining backwards, as no more steps begin; the answer is Drained. */
  | { readonly type: "Drain" }
  /** To itself: steps one bucket. */
  | { readonly type: "StepBucket" }
  | LinkMessage<PeerMessage>
  /** Asks for a {@linkcode WorkerReport}. */
  | { readonly type: "Report" }
  /** Asks for weights and moments; the answer is Saved. */
  | { readonly type: "Save" }
  /** Asks for parts of weights and moments of a stage; the answer is Fetched. */
  | Fetch
  /** Writes weights and moments to files; the answer is Written. */
  | { readonly type: "Write"; readonly order: ShardOrder; readonly step: number };

/**
 * Asks for parts of weights and moments of one stage, as one array. A reader that asks for one message
 * of parts at a time holds only that much of a model.
 */
export interface Fetch {
  /** The type of the message. */
  readonly type: "Fetch";
  /** The stage that holds them. */
  readonly stage: number;
  /** The parts, in the order of the answer. */
  readonly parts: readonly TensorPart[];
  /** The number of the question, which its answer repeats. */
  readonly nth?: number;
}

/** The result of writing a shard. */
export type WriteOutcome =
  | { readonly shard: WrittenShard }
  | { readonly problem: string; readonly isNonFinite: boolean };

/** The state of a worker, for the report of a stall. */
export interface WorkerReport {
  /** The action that its policy would run next, such as `1B3`. */
  readonly waitsFor: string;
  /** The actions whose inputs have arrived. */
  readonly ready: readonly string[];
}

/** Reports that no actor has worked for a time, while answers are awaited. */
export interface Stalled {
  /** The type of the message. */
  readonly type: "Stalled";
  /** The time without activity, in milliseconds. */
  readonly forMs: number;
}

/** The messages to the supervisor. */
export type SupervisorMessage =
  /** Connects the workers; the reply comes when all are ready. */
  | { readonly type: "Start" }
  /** Runs one optimizer step; the reply is a {@linkcode StepOutcome}. */
  | { readonly type: "RunStep"; readonly request: StepRequest; readonly plan: StepPlan }
  /** Empties the pipe; the reply comes when all steps have ended. */
  | { readonly type: "Drain" }
  /** Asks for the losses of micro-batches, without training on them. */
  | { readonly type: "Evaluate"; readonly microBatches: readonly Batch[] }
  /** Asks for the digests of all weights and moments; the reply has one for each copy. */
  | { readonly type: "Compare" }
  /** Ends a worker whose results were wrong, as if it were lost. */
  | { readonly type: "Exclude"; readonly worker: number; readonly why: string }
  /** Asks for weights and moments of the whole model; the reply is a {@linkcode StageState}. */
  | { readonly type: "Save" }
  /** Asks for parts of weights and moments; the reply is a Float32Array. */
  | Fetch
  /**
   * Lets the workers write weights and moments of the whole model; the reply is a
   * {@linkcode WriteOutcome} of each.
   */
  | {
    readonly type: "Write";
    /** The workers that write, and their orders. */
    readonly orders: readonly { readonly worker: number; readonly order: ShardOrder }[];
    /** Optimizer steps done. */
    readonly step: number;
  }
  /** Brings the digests of the weights and moments of a worker. */
  | { readonly type: "Digested"; readonly worker: number; readonly digests: readonly CopyDigest[] }
  /** Reports a survivor whose state no longer changes. */
  | { readonly type: "Frozen"; readonly worker: number }
  /** Reports a worker that knows the others and has compiled its stages. */
  | { readonly type: "Ready"; readonly worker: number }
  /** Brings the weights and moments of a worker. */
  | { readonly type: "Saved"; readonly worker: number; readonly state: StageState }
  /** Brings the requested parts of weights and moments. */
  | {
    readonly type: "Fetched";
    readonly values: Float32Array<ArrayBuffer>;
    readonly nth?: number | undefined;
  }
  /** Reports that a worker has written its weights and moments, or has failed to. */
  | { readonly type: "Written"; readonly worker: number; readonly outcome: WriteOutcome }
  /** Brings the loss of each sample of a micro-batch, by its global id. */
  | {
    readonly type: "Loss";
    /** The step; absent in an evaluation. */
    readonly round?: number | undefined;
    readonly microBatch: number;
    /** The slice of the sequence; slices come in order. */
    readonly part?: Part;
    readonly losses: Float32Array;
  }
  /** Reports that a micro-batch of a replica has left the pipeline, so that another may enter. */
  | { readonly type: "Credit"; readonly replica: number }
  /** Brings the vote of a copy of a stage that has all its gradients. */
  | {
    readonly type: "GradientsReady";
    readonly stage: number;
    readonly isSafe: boolean;
    /** Errors that were found since its last report. */
    readonly doubts?: readonly Doubt[];
  }
  /** Reports a worker that has all sums, with sums of squares by parameter from first copies. */
  | {
    readonly type: "Reduced";
    readonly squares: GradientSquares;
    /** The digests of its sums; empty unless they are verified. */
    readonly digests?: readonly CopyDigest[];
    /** Errors that were found since its last report. */
    readonly doubts?: readonly Doubt[];
  }
  /** Reports that a worker has stepped all its buckets for a step, or dropped its gradients. */
  | {
    readonly type: "StepDone";
    readonly round: number;
    readonly worker: number;
    /** For each update that it made by itself, the sum of squares of each parameter's gradient. */
    readonly updates: readonly GradientSquares[];
    readonly peakActivations: number;
    readonly weights: number;
    readonly memory: StageMemory;
    /** Its actions since the last report. */
    readonly trace: readonly TracedAction[];
  }
  /** Reports that a worker has run all remaining backwards. */
  | { readonly type: "Drained" }
  | Stalled
  /** Reports a worker that has ended. */
  | { readonly type: "WorkerDown"; readonly down: Down };

/** The answer of the supervisor to every question after it has lost a worker. */
export interface WorkerLost {
  /** Id of the actor that failed first. */
  readonly worker: string;
  /** The failure, with its step and action. */
  readonly message: string;
  /** The kind of the failure. */
  readonly kind: Failure["kind"];
  /** True if it exists but does not answer: only a process can then be ended. */
  readonly isWedged: boolean;
  /** True if it was ended because its results were wrong. */
  readonly isExcluded?: boolean;
  /** The surviving part of the pipeline; absent unless it holds every stage. */
  readonly remains?: Remains | undefined;
  /** True if a step was in progress. */
  readonly isInStep?: boolean | undefined;
}

/** The part of a pipeline that remains after the loss of a worker. */
export interface Remains {
  /** The number of workers that live, frozen. */
  readonly workers: number;
  /** The outcome of the step in progress, if it was committed. */
  readonly committed?: StepOutcome | undefined;
}

/** An answer of the supervisor. */
export type Answer<T> = { readonly value: T } | { readonly lost: WorkerLost };
