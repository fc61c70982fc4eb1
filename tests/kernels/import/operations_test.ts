/** Operations of ONNX files, of old opsets and new ones, against onnxruntime-web. */

import assert from "node:assert/strict";
import { InferenceSession, Tensor } from "onnxruntime-web";
import { type Attribute, type Device, encodeModel, openNative } from "../../../kernels/mod.ts";
import { elementCount, sameShape } from "../../../kernels/graph/shapes.ts";
import { foldFile, staticInputs } from "../../../kernels/onnx/fold.ts";
import { readOnnx } from "../../../kernels/onnx/read_file.ts";
import {
  goldenLines,
  type GoldenTensor,
  numbers,
  onnxModel,
  tensorOf,
  type TestModel,
} from "./onnx_model.ts";

/** One node with its inputs and opset. */
interface Case {
  readonly op: string;
  readonly opset?: number;
  /** Shapes of what a run gives. */
  readonly x?: readonly (readonly number[])[];
  /** Further inputs from the file; null for those left out. */
  readonly rest?: readonly (GoldenTensor | null)[];
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly outputs?: number;
  readonly domain?: string;
  /** Only positive numbers. */
  readonly isPositive?: boolean;
}

const CASES = goldenLines<Case>("operations");

function modelOf(
  { op, opset, x = [], rest = [], attributes = {}, outputs = 1, domain = "" }: Case,
): TestModel {
  const inputs = Object.fromEntries(x.map((shape, i) => [`x${i}`, shape]));
  const initializers = Object.fromEntries(
    rest.flatMap((tensor, i) => tensor ? [[`c${i}`, tensorOf(tensor)]] : []),
  );
  const names = Array.from({ length: outputs }, (_, i) => `y${i}`);
  const reads = [...Object.keys(inputs), ...rest.map((tensor, i) => tensor ? `c${i}` : "")];
  return {
    ...opset && { opset },
    inputs,
    initializers,
    outputs: Object.fromEntries(names.map((name) => [name, "f32"])),
    nodes: [{ op, inputs: reads, outputs: names, attributes, domain }],
  };
}

/** Computes an imported file on the native device. */
async function imported(bytes: Uint8Array, feeds: ReadonlyMap<string, Float32Array>) {
  const file = readOnnx(bytes, {}), inputs = staticInputs(file.inputs, {});
  const folded = foldFile({ file, inputs, isFrozen: () => false });
  const values = file.outputs.map((name) => folded.valueOf(name)!);
  const given = folded.graph.inputs.map((value) => ({ name: value.name, value }));
  const model = encodeModel(
    folded.graph,
    given,
    values.map((value, i) => ({ name: `${i}`, value })),
  );
  const kernel = await device.compile(model);
  const tensors = Object.fromEntries(kernel.inputs.map((name) => {
    const value = folded.graph.inputs.find((one) => one.name === name)!;
    const tensor = device.alloc(value.dtype, value.shape);
    device.write(tensor, feeds.get(name.replace(/^(batch|p)\./, ""))!);
    return [name, tensor];
  }));
  const made = values.map(({ dtype, shape }) => device.alloc(dtype, shape));
  await kernel.bind(tensors, Object.fromEntries(made.map((tensor, i) => [`${i}`, tensor])))();
  const results = await Promise.all(made.map((tensor) => device.read<Float32Array>(tensor)));
  for (const tensor of [...Object.values(tensors), ...made]) device.free(tensor);
  kernel.close();
  return values.map(({ shape }, i) => ({ shape, data: results[i]! }));
}

let device: Device;

// Loading the runtime opens ports that stay.
Deno.test.beforeAll(async () => {
  device = await openNative();
  const bytes = onnxModel(modelOf({ op: "Relu", x: [[1]] }));
  await (await InferenceSession.create(bytes)).release();
});

Deno.test.afterAll(() => device.close());

for (const one of CASES) {
  const { op, opset, x = [], rest = [], attributes = {}, isPositive = false } = one;
  const given = [...x.map((shape) => `[${shape}]`), ...rest.map((tensor) => tensor?.data ?? "")];
  const name = `${op}(${given.join(", ")}) ${JSON.stringify(attributes)}`;
  Deno.test(`${name} of opset ${opset ?? 20} is that of onnxruntime-web`, async () => {
    const model = modelOf(one), bytes = onnxModel(model);
    const feeds = new Map<string, Float32Array<ArrayBuffer>>(
      x.map((shape, i) => [
        `x${i}`,
        numbers(shape, i).map((value) => isPositive ? Math.abs(value) + 0.1 : value),
      ]),
    );
    const session = await InferenceSession.create(bytes);
    const wanted = await session.run(
      Object.fromEntries(x.map((shape, i) => [`x${i}`, new Tensor(feeds.get(`x${i}`)!, shape)])),
    );
    for (const [key, { data }] of Object.entries(model.initializers ?? {})) {
      if (data instanceof Float32Array) feeds.set(key, data as Float32Array<ArrayBuffer>);
    }
    const got = await imported(bytes, feeds);
    for (const [i, { shape, data }] of got.entries()) {
      const { dims, data: want } = wanted[`y${i}`]!;
      assert.ok(sameShape(shape, dims), `[${shape}], not [${dims}]`);
      assert.equal(data.length, elementCount(dims));
      data.forEach((value, at) => {
        const right = (want as Float32Array)[at]!;
        assert.ok(
          Math.abs(value - right) <= 1e-5 * Math.max(1, Math.abs(right)),
          `${at}: ${value}, not ${right}`,
        );
      });
    }
    await session.release();
  });
}
