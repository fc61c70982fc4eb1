/** Operations of ONNX files, of old opsets and new ones, against onnxruntime-web. */

import assert from "node:assert/strict";
import { Tensor } from "onnxruntime-web";
import { type Attribute, type Device, openNative } from "../../../kernels/mod.ts";
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
import { modelOf as graphModel, runModel } from "../devices/models.ts";
import { assertNear } from "../devices/operator_cases.ts";
import { loadRuntime, runOnnx } from "../../onnx.ts";

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
  const outputs = Object.fromEntries(values.map((value, i) => [`y${i}`, value]));
  const results = await runModel(
    device,
    graphModel(folded.graph, outputs),
    ({ name }) => Array.from(feeds.get(name.replace(/^(batch|p)\./, ""))!),
  );
  return values.map(({ shape }, i) => ({ shape, data: results.get(`y${i}`)! }));
}

let device: Device;

loadRuntime();
Deno.test.beforeAll(async () => void (device = await openNative()));

Deno.test.afterAll(() => device.close());

for (const one of CASES) {
  const { op, opset, x = [], rest = [], attributes = {}, isPositive = false } = one;
  const given = [...x.map((shape) => `[${shape}]`), ...rest.map((tensor) => tensor?.data ?? "")];
  const name = `${op}(${given.join(", ")}) ${JSON.stringify(attributes)}`;
  Deno.test(`${name} of opset ${opset ?? 20} is that of onnxruntime-web`, async () => {
    const model = modelOf(one), bytes = onnxModel(model);
    const feeds = new Map(x.map((shape, i) => [
      `x${i}`,
      numbers(shape, i).map((value) => isPositive ? Math.abs(value) + 0.1 : value),
    ]));
    const tensors = x.map((shape, i) => [`x${i}`, new Tensor(feeds.get(`x${i}`)!, shape)]);
    const wanted = await runOnnx(bytes, Object.fromEntries(tensors));
    for (const [key, { data }] of Object.entries(model.initializers ?? {})) {
      if (data instanceof Float32Array) feeds.set(key, data as Float32Array<ArrayBuffer>);
    }
    const got = await imported(bytes, feeds);
    for (const [i, { shape, data }] of got.entries()) {
      const { dims, data: want } = wanted[`y${i}`]!;
      assert.ok(sameShape(shape, dims), `[${shape}], not [${dims}]`);
      assert.equal(data.length, elementCount(dims));
      assertNear(data, want as Float32Array, 1e-5, op);
    }
  });
}
