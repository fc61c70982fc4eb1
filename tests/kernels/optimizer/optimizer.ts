/** The optimizers against PyTorch's rule, on any device. */

import assert from "node:assert/strict";
import {
  createParameters,
  type DeviceName,
  openDevice,
  openGradientNorms,
  openOptimizer,
  type OptimizerOptions,
  substream,
} from "../../../kernels/mod.ts";
import type { RegisterTest } from "../../devices.ts";

const SPECS = [{ name: "weight", shape: [40, 50] }, { name: "bias", shape: [50] }];

/** PyTorch's rule for one number, in f64. */
function update(options: OptimizerOptions, step: number, rate: number, decay: number) {
  return (w: number, g: number, moments: number[]): number => {
    if (options.kind === "sgd") {
      moments[0] = options.momentum * moments[0]! + g + decay * w;
      return w - rate * moments[0]!;
    }
    const { beta1, beta2, epsilon } = options;
    moments[0] = beta1 * moments[0]! + (1 - beta1) * g;
    moments[1] = beta2 * moments[1]! + (1 - beta2) * g * g;
    const first = moments[0]! / (1 - beta1 ** step), second = moments[1]! / (1 - beta2 ** step);
    return w * (1 - rate * decay) - rate * first / (Math.sqrt(second) + epsilon);
  };
}

const OPTIMIZERS: readonly OptimizerOptions[] = [
  { kind: "adamw", beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1 },
  { kind: "sgd", momentum: 0.9, weightDecay: 0.1 },
];

/** Registers the tests of a device. */
export function testOptimizer(name: DeviceName, test: RegisterTest = Deno.test): void {
  for (const options of OPTIMIZERS) {
    test(`${options.kind} on ${name} follows PyTorch's rule and decays matrices only`, async () => {
      const device = await openDevice(name), count = options.kind === "adamw" ? 2 : 1;
      try {
        const store = createParameters(device, SPECS, { moments: count, bucketSize: 512 });
        const optimizer = await openOptimizer(device, store, options);
        const generator = substream(3, name);
        const draw = (length: number) =>
          Float32Array.from({ length }, () => (generator.next() | 0) / 2 ** 31);
        const expected = store.parameters.map(({ shape, weights }) => {
          const values = draw(shape.reduce((a, b) => a * b, 1));
          device.write(weights[0]!, values);
          return { values: [...values], moments: [...values].map(() => [0, 0]) };
        });
        for (let step = 1; step <= 5; step++) {
          store.parameters.forEach(({ shape, gradient }, i) => {
            const gradients = draw(shape.reduce((a, b) => a * b, 1));
            device.write(gradient, gradients);
            const rule = update(options, step, 0.01, shape.length >= 2 ? options.weightDecay : 0);
            const { values, moments } = expected[i]!;
            gradients.forEach((g, k) => values[k] = rule(values[k]!, g, moments[k]!));
          });
          optimizer.begin(step, 0.01, 1);
          for (let b = 0; b < store.buckets.length; b++) await optimizer.stepBucket(b);
        }
        for (const [i, { name: parameter, weights }] of store.parameters.entries()) {
          const received = await device.read<Float32Array>(weights[0]!);
          received.forEach((value, k) => {
            const wanted = expected[i]!.values[k]!;
            assert.ok(
              Math.abs(value - wanted) < 2e-6,
              `${parameter}[${k}]: ${value}, not ${wanted}`,
            );
          });
        }
      } finally {
        device.close();
      }
    });
  }

  test(`sums of squares of gradients on ${name} are those of each parameter alone`, async () => {
    const device = await openDevice(name);
    try {
      const store = createParameters(device, SPECS, { moments: 1 });
      const { squares } = await openGradientNorms(device, store);
      device.write(store.parameters[0]!.gradient, new Float32Array(2000).fill(0.5));
      device.write(store.parameters[1]!.gradient, new Float32Array(50).fill(2));
      assert.deepEqual(await squares(), new Map([["weight", 500], ["bias", 200]]));
    } finally {
      device.close();
    }
  });
}
