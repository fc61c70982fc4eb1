/**
 * Homes of workers: an actor in each isolate of a run that may move. After a move, new workers start
 * in the homes that are left, where modules are loaded and kernels compiled.
 *
 * @module
 */

import { type Device, type DeviceOptions, openDevice } from "../../kernels/mod.ts";
import type { ActorFactory, ActorRef, ActorSpec, Reply } from "../runtime/mod.ts";
import type { WorkerMessage } from "./protocol.ts";
import type { WorkerInit } from "./worker_state.ts";

/** The messages to a home. */
export type HomeMessage =
  /** Answered with the worker's address. */
  | {
    readonly type: "StartWorker";
    readonly made: ActorSpec<WorkerInit, WorkerMessage>;
    readonly init: WorkerInit;
    readonly capacity: number;
  }
  /** Answered when the worker has ended. */
  | { readonly type: "StopWorker" }
  /** The worker has ended. */
  | { readonly type: "WorkerEnded" };

/** A device without memory in use. */
interface KeptDevice {
  readonly key: string;
  readonly device: Device;
}

/** The devices that this isolate keeps for later workers; undefined unless it has a home. */
let kept: KeptDevice[] | undefined;

/** Opens a device, or takes the device that an earlier worker of this home left. */
export async function takeDevice(
  name: string,
  options: DeviceOptions,
): Promise<{ readonly device: Device; readonly leave: () => void }> {
  const key = JSON.stringify([name, options]);
  const at = kept?.findIndex((one) => one.key === key) ?? -1;
  const device = at < 0 ? await openDevice(name, options) : kept!.splice(at, 1)[0]!.device;
  const leave = () => {
    if (!kept || !device.clear) return device.close();
    device.clear();
    kept.push({ key, device });
  };
  return { device, leave };
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
    StopWorker() {
      if (!worker) return ctx.reply(undefined);
      stopped = ctx.deferReply();
      ctx.stop(worker);
    },
    WorkerEnded() {
      worker = undefined;
      stopped?.(undefined);
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
