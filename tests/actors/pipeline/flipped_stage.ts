/**
 * Kernels and workers in which one bit changes: in a sum, a gradient, a weight, a moment, the output
 * of a forward, or the arrays of a message.
 *
 * @module
 */

import type { StageOptions, StageProgram } from "../../../kernels/mod.ts";
import { keyed, openStage } from "../../../kernels/internal.ts";
import type { PeerMessage } from "../../../actors/pipeline/protocol.ts";
import { pipelineWorker } from "../../../actors/pipeline/worker.ts";
import type { ActorFactory } from "../../../actors/runtime/mod.ts";
import { FakeStage } from "../../../actors/simulated_training/fake_stage.ts";
import type { WorkerInit } from "../../../actors/pipeline/worker_state.ts";
import type { WorkerMessage } from "../../../actors/pipeline/protocol.ts";

/** A place in which a bit changes. */
export interface Flip {
  readonly where:
    | ("sum" | "gradient" | "weight" | "moment" | "forward")
    | ("Activation" | "Gradient" | "ReducePart");
  /** The worker, counted from the first that was started. */
  readonly worker: number;
  /** Tries of steps before it, and between two. */
  readonly after: number;
  /** Number of flips. */
  left: number;
}

/** The flips of the current run, and the workers that it has started. */
export const current: { flip: Flip | undefined; stages: number; workers: number } = {
  flip: undefined,
  stages: 0,
  workers: 0,
};

/** Changes a bit of the first number. */
function flipped<A extends ArrayBufferView>(array: A): A {
  new Int32Array(array.buffer, array.byteOffset, 1)[0]! ^= 1 << 20;
  return array;
}

/** Returns true if the bit changes now, in a try of a step. */
function isDue(where: Flip["where"], worker: number, tries: number): boolean {
  const { flip } = current;
  if (flip?.where !== where || flip.worker !== worker || flip.left === 0) return false;
  if (tries === 0 || tries % (flip.after + 1) !== flip.after) return false;
  flip.left--;
  return true;
}

/** The fake kernels of a stage, with a moment. */
class FlippedStage extends FakeStage {
  readonly #worker = current.stages++;
  readonly #moment = Float32Array.of(1);
  #tries = 0;

  override zeroGradients(): void {
    super.zeroGradients();
    this.#tries++;
  }

  override writeGradients(offset: number, values: Float32Array): void {
    const isWrong = offset === 0 && isDue("sum", this.#worker, this.#tries);
    super.writeGradients(offset, isWrong ? flipped(values.slice()) : values);
  }

  override async checkGradients(copies: number): Promise<boolean> {
    if (isDue("gradient", this.#worker, this.#tries)) {
      const values = await this.readGradients(0, 1) as Float32Array;
      super.writeGradients(0, flipped(values));
    }
    return await super.checkGradients(copies);
  }

  override async stepBucket(index: number): Promise<void> {
    await super.stepBucket(index);
    if (index > 0) return;
    if (isDue("moment", this.#worker, this.#tries)) flipped(this.#moment);
    if (!isDue("weight", this.#worker, this.#tries)) return;
    const [[name, values]] = (await super.save()).weights as unknown as [[string, Float32Array]];
    this.write(name, flipped(values));
  }

  override async forward(...of: Parameters<FakeStage["forward"]>) {
    const result = await super.forward(...of);
    if (isDue("forward", this.#worker, this.#tries)) {
      flipped(Object.values(keyed(result.output))[0]!);
    }
    return result;
  }

  override async scan(...[what, see]: Parameters<FakeStage["scan"]>) {
    await super.scan(what, see);
    if (what === "state") see(this.#moment);
  }
}

/** Opens the kernels of a stage. */
export const openFlippedStage = (_device: unknown, program: StageProgram, options: StageOptions) =>
  new FlippedStage(program, options);

/** Makes a worker for which a message changes on its way. */
export const flippingWorker: ActorFactory<WorkerInit, WorkerMessage> = async (ctx, init) => {
  const handlers = await pipelineWorker(ctx, init), worker = current.workers++;
  let tries = 0;
  const changing = (type: "Activation" | "Gradient" | "ReducePart") => (message: PeerMessage) => {
    const arrays = "tensor" in message ? Object.values(keyed(message.tensor)) : [];
    // A term of a sum; the sums that a copy gets from others are the place "sum".
    const isTerm = message.type === "ReducePart" && message.part.phase !== "gather";
    const values = isTerm ? message.part.values : arrays[0];
    if (values && isDue(type, worker, tries)) flipped(values);
    return (handlers[type] as (message: PeerMessage) => unknown)(message);
  };
  return {
    ...handlers,
    Begin(message: Parameters<typeof handlers.Begin>[0]) {
      tries = message.round - 1;
      return handlers.Begin(message);
    },
    Activation: changing("Activation"),
    Gradient: changing("Gradient"),
    ReducePart: changing("ReducePart"),
  } as typeof handlers;
};

/** True in the isolate of the worker whose sums are wrong. */
let isWrong = false;

/** Makes a worker in its isolate; that of number 3 is wrong. */
export const wrongWorker: ActorFactory<WorkerInit, WorkerMessage> = (ctx, init) => {
  isWrong = init.worker === 3;
  return pipelineWorker(ctx, init);
};

/** Opens the real kernels of a stage. On the wrong worker a sum changes in two steps. */
export async function openWrongStage(...of: Parameters<typeof openStage>) {
  const stage = await openStage(...of), { zeroGradients, writeGradients } = stage;
  let tries = 0;
  return Object.assign(stage, {
    zeroGradients() {
      tries++;
      zeroGradients.call(stage);
    },
    writeGradients(offset: number, values: Float32Array) {
      const isNow = isWrong && offset === 0 && (tries === 1 || tries === 3);
      writeGradients.call(stage, offset, isNow ? flipped(values.slice()) : values);
    },
  });
}
