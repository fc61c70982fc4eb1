/** A device that computes models as they are rewritten for the GPU. */

import type { Device } from "../../../../kernels/devices/device.ts";
import { prepareModel } from "../../../../kernels/devices/webgpu/model/prepare_model.ts";

/** Another device that gets each model rewritten: what the GPU is given, where there is none. */
export function preparing(device: Device): Device {
  return new Proxy(device, {
    get(target, key) {
      if (key === "compile") {
        return (model: Uint8Array) => target.compile(prepareModel(model).bytes);
      }
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
