/**
 * Homes of workers: an actor in each isolate of a run that may move. After a move, new workers start
 * in the homes that are left, where modules are loaded and kernels compiled.
 *
 * @module
 */

import { compileStage } from "../../kernels/internal.ts";
import { type Device, openDevice } from "../../kernels/mod.ts";
import type { ActorFactory, ActorRef, ActorSpec, Reply } from "../runtime/mod.ts";
import type { WorkerMessage } from "./protocol.ts";
import type { OpenCopy, StageCopies } from "./stage_copies.ts";
import type { WorkerInit } from "./worker_state.ts";

/** The messages to a home. */
export type HomeMessage =
  | { readonly made: ActorSpec<WorkerInit, WorkerMessage> }
    & (
      /** Answered with the worker's address. */
      | { readonly type: "StartWorker"; readonly init: WorkerInit; readonly capacity: number }
      /** Answered with true when the kernels of workers, of which one may start here, are compiled. */
      | { readonly type: "WarmUp"; readonly workers: readonly WorkerInit[] }
    )
  /** Answered when the worker has ended: true if the home keeps its stages. */
  | { readonly type: "StopWorker" }
  /** The worker has ended. */
  | { readonly type: "WorkerEnded" };

/** The open stages of a worker, with weights and moments. */
interface OpenStages {
  readonly copies: StageCopies;
  readonly mirrors: readonly OpenCopy[];
}

/** A device without memory in use, except for the stages. */
interface KeptDevice {
  readonly key: string;
  readonly device: Device;
  readonly stages: OpenStages | undefined;
}

/** The devices that this isolate keeps for later workers; undefined unless it has a home. */
let kept: KeptDevice[] | undefined;

/**
 * Opens a device, or takes the device that an earlier worker of this home left.
 *
 * @param isKept True to take the stages of that worker, too.
 */
export async function takeDevice(
  { name, ...choice }: WorkerInit["device"],
  isKept = false,
): Promise<Pick<KeptDevice, "device" | "stages"> & { leave(stages?: OpenStages): void }> {
  // Steps of an isolate do not overlap, so nothing else could be done while a kernel computes.
  const options = { ...choice, isBlocking: true }, key = JSON.stringify([name, options]);
  const at = kept?.findIndex((one) => one.key === key) ?? -1;
  const known = at < 0 ? undefined : kept!.splice(at, 1)[0]!;
  const device = known?.device ?? await openDevice(name, options);
  if (known?.stages && !isKept) device.clear!();
  const leave = (stages?: OpenStages) => {
    if (!kept || !device.clear) return device.close();
    if (!stages) device.clear();
    kept.push({ key, device, stages });
  };
  return { device, stages: known?.stages, leave };
}

/** The spec of a home, in any isolate but the root. */
export const WORKER_HOME: ActorSpec<undefined, HomeMessage> = {
  module: import.meta.url,
  export: "workerHome",
};

/** Makes a home. Handled messages: {@linkcode HomeMessage}. */
export const workerHome: ActorFactory<undefined, HomeMessage> = (ctx) => {
  let worker: ActorRef<WorkerMessage> | undefined, stopped: Reply | undefined;
  kept = [];
  ctx.defer(() => kept!.forEach(({ device }) => device.close()));
  return {
    StartWorker({ made, init, capacity }) {
      const id = `worker-${init.worker}`, transfer = buffersOf(init);
      worker = ctx.spawn(made, init, { id, capacity, transfer });
      // A failure that is watched does not end the home.
      ctx.watch(worker, () => ({ type: "WorkerEnded" }));
      ctx.reply(worker);
    },
    async WarmUp({ made, workers }) {
      await import(made.module);
      for (const { device: choice, held, mirrors = [], stage } of workers) {
        const { device, leave } = await takeDevice(choice);
        for (const { program } of [...held, ...mirrors]) await compileStage(device, program, stage);
        leave();
      }
      ctx.reply(true);
    },
    StopWorker() {
      if (!worker) return ctx.reply(false);
      stopped = ctx.deferReply();
      ctx.stop(worker);
    },
    WorkerEnded() {
      worker = undefined;
      stopped?.(kept!.some(({ stages }) => stages));
      stopped = undefined;
    },
  };
};

/** Returns the buffers of the initial state of a worker. */
function buffersOf({ held, mirrors = [] }: WorkerInit): ArrayBuffer[] {
  const arrays = [...held, ...mirrors].flatMap(({ state: { weights, moments } }) =>
    [...weights.values(), ...moments.values()].flatMap((one) =>
      ArrayBuffer.isView(one) && one.buffer instanceof ArrayBuffer ? [one.buffer] : []
    )
  );
  return [...new Set(arrays)];
}
