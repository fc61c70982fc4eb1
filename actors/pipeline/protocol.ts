/**
 * The messages of a training run, with or without flushes. A change that an older peer cannot read
 * raises the version.
 *
 * One step: supervisor —Begin→ all workers; —Inject→ worker of stage 0 → F → Activation → … → last
 * stage: F, Loss and B → Gradient → … → stage 0: B, Credit → supervisor injects the next.
 *
 * With a flush, a copy of a stage that has had all its B sends GradientsReady, its vote; the
 * supervisor answers with Reduce (add the gradients of all copies), and once all votes are in with
 * Commit (step the optimizer) or Abort. Reduced and StepDone close the step.
 *
 * Without, a stage steps its weights by itself, and StepDone says that it has had all updates of a
 * step, while later ones are under way; Drain lets the pipe run empty, and Drained says that it has.
 *
 * Which message has a meaning in which state of its receiver: `worker/worker_messages.ts` and
 * `supervisor/supervisor_messages.ts`.
 *
 * @module
 */

import type { Batch } from "../../kernels/mod.ts";
import type {
  MessageArray,
  Passed,
  StageMemory,
  StageState,
  TensorPart,
} from "../../kernels/internal.ts";
import type { ShardOrder, WrittenShard } from "../checkpoints/read.ts";
import type { ReduceMessage } from "../gradients/all_reduce.ts";
import type { GradientSquares } from "../gradients/commit.ts";
import type { ActorRef, Down, Failure, Handlers, Message } from "../runtime/mod.ts";
import type { LinkMessage } from "./links.ts";
import type {
  LocalUpdates,
  MicroBatchShare,
  PolicyData,
  StepDropout,
  StepPlan,
  StepRequest,
  TracedAction,
} from "./step.ts";

/** For each state of an actor the messages that have a meaning in it. */
export type StateTable<S extends string, M extends Message> = Readonly<
  Record<S, readonly M["type"][]>
>;

/** How every refusal begins: a bug of whoever sent the message, or of the actor. */
export const REFUSAL = "Cannot handle";

/**
 * Handlers that refuse what has no meaning.
 *
 * @param who whose they are: `worker`.
 * @param table the messages of each state; what no state takes is refused in all.
 * @param state the state that the actor is in now.
 * @param types all messages of the protocol.
 * @returns handlers which throw, and so end the actor, when a message comes in another state.
 * @throws {TypeError} when a message that some state takes has no handler.
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
): Handlers<M> {
  const states = Object.keys(table) as S[];
  const refuse = (type: M["type"]): never => {
    const right = states.filter((one) => table[one].includes(type)).join(" or ") || "another one";
    throw new Error(
      `${REFUSAL} ${type}: the ${who} must be ${right}, received it while ${state()}`,
    );
  };
  const entries = types.map((type) => {
    const meaningful = new Set(states.filter((one) => table[one].includes(type)));
    const handle = handlers[type] as ((message: Message) => void | Promise<void>) | undefined;
    if (!handle && meaningful.size > 0) {
      throw new TypeError(`Cannot make a ${who}: ${type} must have a handler, received none`);
    }
    return [type, (message: Message) => {
      return handle && meaningful.has(state()) ? handle(message) : refuse(type);
    }];
  });
  return Object.fromEntries(entries) as Handlers<M>;
}

/** Version of these messages. */
export const PROTOCOL_VERSION = 8;

/** What a worker sends to other workers: each may take its time over a link. */
export type PeerMessage =
  /**
   * The output of the stage before arrives with the micro-batch's fields, or what another stage before
   * gives by name; F runs when all has come.
   */
  | {
    readonly type: "Activation";
    readonly stage: number;
    readonly microBatch: number;
    /** Of a sequence in slices which it is of; not in an evaluation, where it is of all. */
    readonly slice?: number;
    readonly tensor: Passed;
    readonly fields: Batch;
    readonly isEvaluation: boolean;
  }
  /**
   * The gradient of the output of stage `stage` arrives, or that of one half of its samples; or that
   * of what it has given or taken by name, from the next stage that uses it.
   */
  | {
    readonly type: "Gradient";
    readonly stage: number;
    readonly microBatch: number;
    readonly half?: 0 | 1;
    readonly slice?: number;
    readonly tensor: Passed;
  }
  /** A part of the all-reduce of stage `stage` for its copy `rank`. */
  | {
    readonly type: "ReducePart";
    readonly round: number;
    readonly stage: number;
    readonly rank: number;
    readonly part: ReduceMessage;
  }
  /** The gradient of another parameter of a tie, for `name` in copy `rank` of stage `stage`. */
  | {
    readonly type: "TieGradient";
    readonly round: number;
    readonly stage: number;
    readonly rank: number;
    readonly name: string;
    /** Its place among those that are tied; absent where they are two. */
    readonly from?: number;
    readonly values: MessageArray;
  };

/** What a worker of the pipeline understands. */
export type WorkerMessage =
  | PeerMessage
  /** Who the others are: sent once, before anything else; Ready says that the worker is. */
  | {
    readonly type: "Connect";
    readonly supervisor: ActorRef<SupervisorMessage>;
    readonly workers: readonly ActorRef<WorkerMessage>[];
  }
  /**
   * A step begins. What arrives earlier from faster workers waits. Its micro-batches are counted
   * from 0 since the pipe was empty.
   */
  | {
    readonly type: "Begin";
    /** Counts the steps tried; a step that is tried again has another round. */
    readonly round: number;
    readonly share: MicroBatchShare;
    /** Where it is not the policy that the worker was made with. */
    readonly policy?: PolicyData | undefined;
    /** For each micro-batch of the share the factor of its loss. */
    readonly lossScales: readonly number[];
    /** The updates that each stage makes by itself; none with a flush. */
    readonly updates?: LocalUpdates | undefined;
    /** What keys its dropout; absent where there is none. */
    readonly dropout?: StepDropout | undefined;
  }
  /** A micro-batch enters stage 0. Its fields travel with the activations to the last stage. */
  | {
    readonly type: "Inject";
    readonly microBatch: number;
    readonly fields: Batch;
    /** Forward only: nothing is kept and no gradient comes back. */
    readonly isEvaluation: boolean;
  }
  /** To itself: run the next action that the policy picks, after all that has arrived by now. */
  | { readonly type: "Dispatch" }
  /** Add the gradients of all copies of these stages. */
  | { readonly type: "Reduce"; readonly stages: readonly number[] }
  /** Step the optimizer, bucket by bucket, as soon as their sums are there. */
  | {
    readonly type: "Commit";
    /** Optimizer step, counted from 1. */
    readonly update: number;
    readonly learningRate: number;
    readonly gradientScale: number;
  }
  /** Leave the weights as they are: the step is not taken, by nobody. */
  | { readonly type: "Abort" }
  /** No more steps begin: run the backwards that are left, and say so. */
  | { readonly type: "Drain" }
  /** To itself: step one bucket. */
  | { readonly type: "StepBucket" }
  | LinkMessage<PeerMessage>
  /** Asks what the worker waits for; the reply is a {@linkcode WorkerReport}. */
  | { readonly type: "Report" }
  /** Asks for weights and moments: Saved brings them. */
  | { readonly type: "Save" }
  /** Asks for parts of weights and moments of a stage: Fetched brings them. */
  | Fetch
  /** Asks for weights and moments to be written to files: Written says where they lie. */
  | { readonly type: "Write"; readonly order: ShardOrder; readonly step: number };

/**
 * Asks for parts of weights and moments of one stage, which come as one array. Whoever asks for the
 * next when these have come holds no more of a model than that.
 */
export interface Fetch {
  /** Which message it is. */
  readonly type: "Fetch";
  /** The stage that has them. */
  readonly stage: number;
  /** What is wanted, in which order. */
  readonly parts: readonly TensorPart[];
}

/** What came of a shard that was to be written. */
export type WriteOutcome =
  | { readonly shard: WrittenShard }
  | { readonly problem: string; readonly isNonFinite: boolean };

/** What a worker waits for, when nothing moves. */
export interface WorkerReport {
  /** The action that its policy would run next, such as `1B3`. */
  readonly waitsFor: string;
  /** The actions whose inputs have arrived. */
  readonly ready: readonly string[];
}

/** Nobody has been at work for so long, in milliseconds, and answers are waited for. */
export interface Stalled {
  /** Which message it is. */
  readonly type: "Stalled";
  /** For how long nobody has been at work. */
  readonly forMs: number;
}

/** What the supervisor understands; it answers with an {@linkcode Answer}. */
export type SupervisorMessage =
  /** Asks for the workers to be connected; the reply comes when all are ready. */
  | { readonly type: "Start" }
  /** Asks for one optimizer step; the reply is a {@linkcode StepOutcome}. */
  | { readonly type: "RunStep"; readonly request: StepRequest; readonly plan: StepPlan }
  /** Asks for an empty pipe; the reply comes when all steps have ended. */
  | { readonly type: "Drain" }
  /** Asks for the losses of micro-batches without training on them. */
  | { readonly type: "Evaluate"; readonly microBatches: readonly Batch[] }
  /** Asks for weights and moments of the whole model; the reply is a {@linkcode StageState}. */
  | { readonly type: "Save" }
  /** Asks for parts of weights and moments; the reply is a Float32Array. */
  | Fetch
  /**
   * Asks for weights and moments of the whole model to be written by the workers that hold them; the
   * reply is a {@linkcode WriteOutcome} of each.
   */
  | {
    readonly type: "Write";
    /** Who is to write what. */
    readonly orders: readonly { readonly worker: number; readonly order: ShardOrder }[];
    /** Optimizer steps done. */
    readonly step: number;
  }
  /** A worker knows the others, and its stages are compiled. */
  | { readonly type: "Ready"; readonly worker: number }
  /** The weights and moments of a worker. */
  | { readonly type: "Saved"; readonly worker: number; readonly state: StageState }
  /** The parts of weights and moments that were asked for. */
  | { readonly type: "Fetched"; readonly values: Float32Array<ArrayBuffer> }
  /** A worker has written its weights and moments, or could not. */
  | { readonly type: "Written"; readonly worker: number; readonly outcome: WriteOutcome }
  /** The loss of each sample of a micro-batch, by its global id. */
  | {
    readonly type: "Loss";
    /** The step; none in an evaluation. */
    readonly round?: number | undefined;
    readonly microBatch: number;
    /** Of a sequence in slices whose losses they are; they come in order. */
    readonly slice?: number;
    readonly losses: Float32Array;
  }
  /** A micro-batch of a data-parallel replica has left the pipeline; another may enter. */
  | { readonly type: "Credit"; readonly replica: number }
  /** A copy of a stage has all its gradients: its vote on the step. */
  | { readonly type: "GradientsReady"; readonly stage: number; readonly isSafe: boolean }
  /** A worker has the sums of all copies; sums of squares by parameter, from the first copies. */
  | { readonly type: "Reduced"; readonly squares: GradientSquares }
  /** A worker has stepped all its buckets for a step, or dropped its gradients. */
  | {
    readonly type: "StepDone";
    readonly round: number;
    readonly worker: number;
    /** For each update that it made by itself the sum of squares of each parameter's gradient. */
    readonly updates: readonly GradientSquares[];
    readonly peakActivations: number;
    readonly weights: number;
    readonly memory: StageMemory;
    /** What it did since it told last. */
    readonly trace: readonly TracedAction[];
  }
  /** A worker has run all backwards that were left, and its part of the pipe is empty. */
  | { readonly type: "Drained" }
  | Stalled
  /** A worker is gone. */
  | { readonly type: "WorkerDown"; readonly down: Down };

/** What the supervisor answers in place of anything else once a worker is gone. */
export interface WorkerLost {
  /** Id of the actor that failed first. */
  readonly worker: string;
  /** What happened, in which step, at which action. */
  readonly message: string;
  /** How it failed. */
  readonly kind: Failure["kind"];
  /** Whether it is there but does not answer: only a process of its own can then be ended. */
  readonly isWedged: boolean;
}

/** An answer of the supervisor. */
export type Answer<T> = { readonly value: T } | { readonly lost: WorkerLost };
