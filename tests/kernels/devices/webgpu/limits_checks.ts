/** What does not fit on an adapter is refused, and never computed as zeros. */

import assert from "node:assert/strict";
import { type Adapter, type Device, openWebgpu, webgpuAdapters } from "../../../../kernels/mod.ts";
import { Graph } from "../../../../kernels/graph/graph.ts";
import { encodeModel } from "../../../../kernels/onnx/encode_model.ts";
import { gpuTest, keepGpuOpen } from "../../../gpu.ts";

keepGpuOpen();

const GIB = 2 ** 30, UNIT = 16;

/** Runs something with a device whose adapter is said to be another one. */
async function withAdapter(
  said: Partial<Adapter>,
  run: (device: Device, adapter: Adapter) => Promise<void> | void,
): Promise<void> {
  const adapter = { ...(await webgpuAdapters()).adapters[0]!, ...said };
  const device = await openWebgpu({ adapter });
  try {
    await run(device, adapter);
  } finally {
    device.close();
  }
}

/** y = Σ of `rows` copies of x, of which the copies lie in memory. */
function sumOfCopies(rows: number, columns: number): Uint8Array {
  const g = new Graph(), x = g.input("x", [columns]);
  const copies = g.exp(g.expand(g.reshape(x, [1, columns]), [rows, columns]));
  return encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: g.sum(copies, [0]) }]);
}

gpuTest(
  "the largest buffer of SwiftShader is what Vulkan says of it, and keeps what is written",
  () =>
    withAdapter({}, async (device, { maxBufferBytes }) => {
      assert.equal(maxBufferBytes, GIB - UNIT);
      const tensor = device.alloc("f32", [maxBufferBytes / 4]);
      const begin = device.view(tensor, 0, [2]);
      device.write(begin, Float32Array.of(3, 4));
      assert.deepEqual(await device.read(begin), Float32Array.of(3, 4));
      device.free(tensor);
    }),
);

gpuTest(
  "a larger one is refused by its size, and by the GPU where its size is not known",
  async () => {
    const shape = [GIB / 4];
    await withAdapter({}, (device, { name }) => {
      assert.throws(() => device.alloc("f32", shape), {
        name: "RangeError",
        message:
          `Cannot allocate on the webgpu device: a tensor must fit into the largest buffer of ${name}, 1023.99 MiB, received 1024.00 MiB; take a smaller micro-batch or a smaller model`,
      });
    });
    await withAdapter({ maxBufferBytes: Infinity }, async (device, { name }) => {
      for (const [size] of [shape, [GIB]]) {
        assert.throws(() => device.alloc("f32", [size!]), {
          name: "RangeError",
          message: new RegExp(
            `^Cannot allocate on the webgpu device: ${
              RegExp.escape(name)
            } must have memory for \\d+\\.00 MiB, received too little; take [^\\n]*$`,
          ),
        });
      }
      const tensor = device.alloc("f32", [2]);
      device.write(tensor, Float32Array.of(1, 2));
      assert.deepEqual(await device.read(tensor), Float32Array.of(1, 2), "the device goes on");
      assert.equal(device.allocatedBytes, 8);
    });
  },
);

gpuTest(
  "what a model computes in between is refused when it is compiled, or else when it runs",
  async () => {
    const rows = 512, columns = 1024, model = sumOfCopies(rows, columns);
    await withAdapter({ maxBufferBytes: 4 * rows * columns - UNIT }, async (device, { name }) => {
      await assert.rejects(device.compile(model), {
        name: "RangeError",
        message: new RegExp(
          `^Cannot compile the model for webgpu: a tensor must fit into the largest buffer of ${
            RegExp.escape(name)
          }, 1.99 MiB, received 2.00 MiB for its value \\S+ \\[512,1024\\]; take `,
        ),
      });
    });
    await withAdapter({ maxBufferBytes: 4 * rows * columns }, async (device) => {
      const kernel = await device.compile(model),
        tensors = [1, 2].map(() => device.alloc("f32", [columns]));
      await kernel.bind({ x: tensors[0]! }, { y: tensors[1]! })();
      assert.deepEqual(await device.read(tensors[1]!), new Float32Array(columns).fill(rows));
    });
    await withAdapter({ maxBufferBytes: Infinity }, async (device) => {
      const kernel = await device.compile(sumOfCopies(GIB / 4 / columns, columns));
      const [x, y] = [1, 2].map(() => device.alloc("f32", [columns]));
      await assert.rejects(kernel.bind({ x: x! }, { y: y! }), {
        name: "RangeError",
        message:
          /^Cannot run the model on webgpu: SwiftShader.* must have memory for what it computes in between, received too little; take [^\n]*$/,
      });
    });
  },
);
