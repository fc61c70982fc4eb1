/**
 * A device with memory of its own, for tests in any isolate: it computes as another device does, its
 * views are not free, and it refuses those at an offset, which would go by way of the host.
 *
 * @module
 */

import type { Device } from "../../kernels/mod.ts";

/** Wraps a device; `copied` counts the bytes of both directions. */
export function ownMemory(device: Device): Device {
  const view: Device["view"] = (tensor, offset, shape) => {
    if (offset === 0) return device.view(tensor, 0, shape);
    throw new Error(`Cannot view the tensor [${tensor.shape}] at ${offset}: that is not free`);
  };
  return changedDevice(device, { hasFreeViews: false, view });
}

/** A device, or another object, of which some members are others. */
export const changedDevice = <T extends object>(device: T, members: Partial<T>): T =>
  new Proxy(device, {
    get(target, key) {
      if (Object.hasOwn(members, key)) return Reflect.get(members, key);
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
