/** Runs whose workers compute on devices with separate memory, which count their copies. */

import type { TrainEvent } from "../../../actors/options/train_events.ts";
import type { CopiedBytes, Device } from "../../../kernels/devices/device.ts";
import { DEVICES } from "../../../kernels/internal.ts";
import { ownMemory } from "../../kernels/own_memory.ts";

type DeviceName = keyof typeof DEVICES;

/** Trains on such devices in place of those with this name; `copied` says what each worker's has copied. */
export async function onOwnMemory<T>(
  name: DeviceName,
  train: (copied: () => CopiedBytes[]) => Promise<T>,
): Promise<T> {
  const { open } = DEVICES[name], devices: Device[] = [];
  const openOwn: typeof open = async (options) => {
    const device = ownMemory(await open(options));
    devices.push(device);
    return device;
  };
  Object.assign(DEVICES[name], { open: openOwn });
  return await train(() => devices.map(({ copied }) => copied))
    .finally(() => Object.assign(DEVICES[name], { open }));
}

/** Returns the bytes that the copies of each of three stages copy in a step, to the device and to the host. */
export async function copiedInStep(
  name: DeviceName,
  train: (see: (event: TrainEvent) => void) => Promise<unknown>,
): Promise<[toDevice: number, toHost: number][]> {
  const sums: [number, number][] = [[0, 0], [0, 0], [0, 0]];
  let before: CopiedBytes[] = [];
  await onOwnMemory(name, (copied) =>
    train(({ type }) => {
      if (type !== "step") return;
      const now = copied();
      for (const [worker, { toDevice, toHost }] of before.entries()) {
        const sum = sums[worker % 3]!;
        sum[0] += now[worker]!.toDevice - toDevice;
        sum[1] += now[worker]!.toHost - toHost;
      }
      before = now;
    }));
  return sums;
}
