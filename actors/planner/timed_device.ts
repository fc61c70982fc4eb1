/**
 * A device that tells how long each run of a model took.
 *
 * @module
 */

import type { Device, Kernel } from "../../kernels/mod.ts";

/**
 * Wraps a device.
 *
 * @param now the clock, in milliseconds.
 * @param tell gets the model as it was given to `compile`, and the milliseconds of a run of it.
 */
export function timedDevice(
  device: Device,
  now: () => number,
  tell: (model: Uint8Array, ms: number) => void,
): Device {
  const compile = async (model: Uint8Array): Promise<Kernel> => {
    const kernel = await device.compile(model);
    return {
      ...kernel,
      bind(inputs, outputs) {
        const run = kernel.bind(inputs, outputs);
        return async () => {
          const start = now();
          await run();
          tell(model, now() - start);
        };
      },
    };
  };
  return new Proxy(device, {
    get(target, key) {
      if (key === "compile") return compile;
      const value = target[key as keyof Device] as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
