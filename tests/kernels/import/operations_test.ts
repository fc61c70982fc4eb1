/** Operations of ONNX files, of old opsets and new ones, against onnxruntime-web. */

import assert from "node:assert/strict";
import { InferenceSession, Tensor } from "onnxruntime-web";
import {
  type Attribute,
  elementCount,
  encodeModel,
  openNative,
  sameShape,
} from "../../../kernels/mod.ts";
import { staticInputs } from "../../../kernels/import/dimensions.ts";
import { readOnnx } from "../../../kernels/import/file/onnx_graph.ts";
import { planFile } from "../../../kernels/import/plan.ts";
import { int64, numbers, onnxModel, type TestModel, type TestTensor } from "./onnx_model.ts";

/** One node: what it is of, and in which opset. */
interface Case {
  readonly op: string;
  readonly opset?: number;
  /** Shapes of what a run gives. */
  readonly x?: readonly (readonly number[])[];
  /** What the file gives, behind that; undefined where an input is left out. */
  readonly rest?: readonly (TestTensor | undefined)[];
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly outputs?: number;
  readonly domain?: string;
  /** Only positive numbers. */
  readonly isPositive?: boolean;
}

const f32 = (...values: readonly number[]): TestTensor => ({ data: Float32Array.from(values) });
const scalar = (value: number): TestTensor => ({ data: Float32Array.of(value), shape: [] });
const float = (value: number) => ({ float: value });

const IMAGE = [2, 4, 6, 5];

const CASES: readonly Case[] = [
  ...[
    ...[
      "Abs",
      "Neg",
      "Exp",
      "Erf",
      "Sin",
      "Cos",
      "Floor",
      "Ceil",
      "Round",
      "Sign",
      "Tanh",
      "Sigmoid",
    ],
    ...["Relu", "Softplus", "Softsign", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid"],
    ...["HardSwish", "ThresholdedRelu", "Mish", "Reciprocal", "Identity", "Gelu"],
  ].map((op) => ({ op, x: [[3, 4]] })),
  ...["LeakyRelu", "Elu", "Celu", "HardSigmoid", "ThresholdedRelu"].map((op) => ({
    op,
    x: [[3, 4]],
    attributes: { alpha: float(0.3) },
  })),
  { op: "Gelu", x: [[3, 4]], attributes: { approximate: "tanh" } },
  { op: "FastGelu", domain: "com.microsoft", x: [[3, 4]], rest: [f32(0.1, 0.2, 0.3, 0.4)] },
  { op: "QuickGelu", domain: "com.microsoft", x: [[3, 4]] },
  ...["Log", "Sqrt"].map((op) => ({ op, x: [[3, 4]], isPositive: true })),
  ...["Add", "Sub", "Mul", "Div"].map((op) => ({ op, x: [[2, 3, 4], [3, 1]] })),
  { op: "Pow", x: [[3, 4]], rest: [scalar(2)] },
  { op: "Pow", x: [[3, 4]], rest: [{ data: BigInt64Array.of(3n), shape: [] }] },
  { op: "PRelu", x: [[2, 3, 4], [3, 1]] },
  { op: "Mod", x: [[3, 4], [4]], attributes: { fmod: 1 } },
  ...["Sum", "Max", "Min", "Mean"].map((op) => ({ op, x: [[2, 3], [3], [1, 3]] })),
  { op: "Clip", x: [[3, 4]], rest: [scalar(-0.5), scalar(0.25)] },
  { op: "Clip", x: [[3, 4]], rest: [undefined, scalar(0.25)] },
  { op: "Clip", opset: 9, x: [[3, 4]], attributes: { min: float(-0.5), max: float(0.25) } },
  { op: "Dropout", x: [[3, 4]], rest: [scalar(0.5)] },
  { op: "Dropout", opset: 9, x: [[3, 4]], attributes: { ratio: float(0.5) } },
  { op: "Reshape", x: [[2, 3, 4]], rest: [int64(0, -1)] },
  { op: "Flatten", x: [[2, 3, 4]], attributes: { axis: 2 } },
  { op: "Squeeze", x: [[2, 1, 3, 1]], rest: [int64(-1)] },
  { op: "Squeeze", x: [[2, 1, 3, 1]] },
  { op: "Squeeze", opset: 11, x: [[2, 1, 3, 1]], attributes: { axes: [1, 3] } },
  { op: "Unsqueeze", x: [[2, 3]], rest: [int64(0, -1)] },
  { op: "Unsqueeze", opset: 9, x: [[2, 3]], attributes: { axes: [1, 3] } },
  { op: "Transpose", x: [[2, 3, 4]] },
  { op: "Transpose", x: [[2, 3, 4]], attributes: { perm: [1, 0, 2] } },
  { op: "Expand", x: [[3, 1]], rest: [int64(2, 1, 4)] },
  { op: "Tile", x: [[2, 3]], rest: [int64(2, 2)] },
  { op: "Concat", x: [[2, 3], [2, 1]], attributes: { axis: -1 } },
  { op: "Split", x: [[2, 6]], attributes: { axis: 1, num_outputs: 3 }, outputs: 3 },
  { op: "Split", x: [[2, 7]], attributes: { axis: 1, num_outputs: 3 }, outputs: 3 },
  { op: "Split", x: [[2, 6]], rest: [int64(1, 5)], attributes: { axis: 1 }, outputs: 2 },
  { op: "Split", opset: 11, x: [[2, 6]], attributes: { axis: 1, split: [4, 2] }, outputs: 2 },
  { op: "Slice", x: [[5, 6]], rest: [int64(1, -3), int64(2 ** 40, -1), int64(0, 1)] },
  { op: "Slice", x: [[5, 6]], rest: [int64(-1), int64(-9), int64(1), int64(-2)] },
  {
    op: "Slice",
    opset: 9,
    x: [[5, 6]],
    attributes: { starts: [1, 2], ends: [3, 100], axes: [1, 0] },
  },
  { op: "Gather", x: [[5, 6]], rest: [int64(4, 0, -1)], attributes: { axis: 1 } },
  { op: "Gather", x: [[5, 6]], rest: [{ data: BigInt64Array.of(1n), shape: [] }] },
  {
    op: "GatherElements",
    x: [[2, 3]],
    rest: [{ data: BigInt64Array.of(2n, -3n), shape: [2, 1] }],
    attributes: { axis: 1 },
  },
  { op: "GatherND", x: [[2, 3, 4]], rest: [{ data: BigInt64Array.of(1n, 2n), shape: [1, 2] }] },
  { op: "Trilu", x: [[4, 5]], attributes: { upper: 0 } },
  { op: "Trilu", x: [[4, 5]], rest: [{ data: BigInt64Array.of(1n), shape: [] }] },
  { op: "DepthToSpace", x: [[1, 8, 2, 3]], attributes: { blocksize: 2 } },
  { op: "DepthToSpace", x: [[1, 8, 2, 3]], attributes: { blocksize: 2, mode: "CRD" } },
  { op: "SpaceToDepth", x: [[1, 2, 4, 6]], attributes: { blocksize: 2 } },
  { op: "MatMul", x: [[2, 3, 4], [4, 5]] },
  { op: "MatMul", x: [[2, 3, 4], [2, 4, 5]] },
  { op: "MatMul", x: [[4], [4, 5]] },
  { op: "MatMul", x: [[2, 3, 4], [4]] },
  {
    op: "Gemm",
    x: [[4, 2], [3, 4], [3]],
    attributes: { transA: 1, transB: 1, alpha: float(0.5), beta: float(2) },
  },
  {
    op: "FusedMatMul",
    domain: "com.microsoft",
    x: [[2, 3, 4], [2, 5, 4]],
    attributes: { transB: 1, alpha: float(0.5) },
  },
  ...[
    ...["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare"],
    ...["ReduceL1", "ReduceL2", "ReduceLogSumExp"],
  ].flatMap((op): Case[] => [
    { op, x: [[2, 3, 4]], rest: [int64(1, -1)], attributes: { keepdims: 0 } },
    { op, x: [[2, 3, 4]] },
    { op, opset: 11, x: [[2, 3, 4]], attributes: { axes: [1], keepdims: 1 } },
  ]),
  { op: "ReduceLogSum", x: [[2, 3, 4]], rest: [int64(2)], isPositive: true },
  { op: "ReduceSum", x: [[2, 3]], rest: [int64()], attributes: { noop_with_empty_axes: 1 } },
  { op: "CumSum", x: [[2, 5]], rest: [{ data: BigInt64Array.of(1n), shape: [] }] },
  ...["Softmax", "LogSoftmax"].flatMap((op): Case[] => [
    { op, x: [[2, 3, 4]], attributes: { axis: 1 } },
    { op, x: [[2, 3, 4]] },
    { op, opset: 11, x: [[2, 3, 4]] },
  ]),
  {
    op: "LayerNormalization",
    opset: 17,
    x: [[2, 3, 4], [4], [4]],
    attributes: { epsilon: float(0.1) },
  },
  { op: "LayerNormalization", opset: 17, x: [[2, 3, 4], [3, 4]], attributes: { axis: 1 } },
  { op: "Conv", x: [IMAGE, [6, 2, 3, 3], [6]], attributes: { group: 2, pads: [1, 0, 2, 1] } },
  { op: "Conv", x: [IMAGE, [3, 4, 3, 2]], attributes: { strides: [2, 1], auto_pad: "SAME_LOWER" } },
  { op: "Conv", x: [[2, 3, 7], [4, 3, 2]], attributes: { dilations: [2] } },
  {
    op: "ConvTranspose",
    x: [IMAGE, [4, 3, 3, 3], [3]],
    attributes: { strides: [2, 2], pads: [1, 1, 1, 1], output_padding: [1, 0] },
  },
  {
    op: "MaxPool",
    x: [IMAGE],
    attributes: { kernel_shape: [3, 3], strides: [2, 2], ceil_mode: 1 },
  },
  { op: "AveragePool", x: [IMAGE], attributes: { kernel_shape: [2, 2], pads: [1, 1, 0, 0] } },
  {
    op: "AveragePool",
    x: [IMAGE],
    attributes: { kernel_shape: [2, 2], pads: [1, 1, 0, 0], count_include_pad: 1 },
  },
  { op: "GlobalAveragePool", x: [IMAGE] },
  { op: "GlobalMaxPool", x: [IMAGE] },
  ...[9, 15].map((opset): Case => ({
    op: "BatchNormalization",
    opset,
    x: [IMAGE],
    rest: [f32(1, 2, 3, 4), f32(4, 3, 2, 1), f32(0, 1, 0, -1), f32(1, 2, 0.5, 1)],
  })),
  { op: "InstanceNormalization", x: [IMAGE, [4], [4]] },
  { op: "GroupNormalization", opset: 21, x: [IMAGE, [4], [4]], attributes: { num_groups: 2 } },
  { op: "Resize", x: [IMAGE], rest: [undefined, f32(1, 1, 2, 2)], attributes: { mode: "nearest" } },
  {
    op: "Resize",
    x: [IMAGE],
    rest: [undefined, f32(1, 1, 3, 2)],
    attributes: { coordinate_transformation_mode: "asymmetric", nearest_mode: "floor" },
  },
  {
    op: "Resize",
    x: [IMAGE],
    rest: [undefined, undefined, int64(2, 4, 9, 7)],
    attributes: { mode: "linear" },
  },
  { op: "Resize", opset: 10, x: [IMAGE], rest: [f32(1, 1, 2, 3)] },
  { op: "Upsample", opset: 9, x: [IMAGE], rest: [f32(1, 1, 2, 3)] },
  { op: "Pad", x: [[2, 3]], rest: [int64(0, 1, 2, 0), scalar(7)] },
  { op: "Pad", x: [[2, 3, 4]], rest: [int64(1, 2), undefined, int64(-1)] },
  { op: "Pad", x: [[2, 5]], rest: [int64(0, 2, 0, 1)], attributes: { mode: "reflect" } },
  { op: "Pad", opset: 9, x: [[2, 3]], attributes: { pads: [0, 1, 2, 0], value: float(3) } },
];

function modelOf(
  { op, opset, x = [], rest = [], attributes, outputs = 1, domain }: Case,
): TestModel {
  const inputs = Object.fromEntries(x.map((shape, i) => [`x${i}`, shape]));
  const initializers = Object.fromEntries(
    rest.flatMap((tensor, i) => tensor ? [[`c${i}`, tensor]] : []),
  );
  const names = Array.from({ length: outputs }, (_, i) => `y${i}`);
  const reads = [...Object.keys(inputs), ...rest.map((tensor, i) => tensor ? `c${i}` : "")];
  return {
    ...opset && { opset },
    inputs,
    initializers,
    outputs: Object.fromEntries(names.map((name) => [name, "f32"])),
    nodes: [{
      op,
      inputs: reads,
      outputs: names,
      ...attributes && { attributes },
      ...domain && { domain },
    }],
  };
}

/** What a file computes on the native device, as it is imported. */
async function imported(bytes: Uint8Array, feeds: ReadonlyMap<string, Float32Array>) {
  const file = readOnnx(bytes, {}), inputs = staticInputs(file.inputs, {});
  const plan = planFile({ file, inputs, isFrozen: () => false });
  const values = file.outputs.map((name) => plan.valueOf(name)!);
  const given = plan.graph.inputs.map((value) => ({ name: value.name, value }));
  const device = await openNative();
  const model = encodeModel(plan.graph, given, values.map((value, i) => ({ name: `${i}`, value })));
  const kernel = await device.compile(model);
  const tensors = Object.fromEntries(kernel.inputs.map((name) => {
    const value = plan.graph.inputs.find((one) => one.name === name)!;
    const tensor = device.alloc(value.dtype, value.shape);
    device.write(tensor, feeds.get(name.replace(/^(batch|p)\./, ""))!);
    return [name, tensor];
  }));
  const made = values.map(({ dtype, shape }) => device.alloc(dtype, shape));
  await kernel.bind(tensors, Object.fromEntries(made.map((tensor, i) => [`${i}`, tensor])))();
  const results = await Promise.all(made.map((tensor) => device.read<Float32Array>(tensor)));
  device.close();
  return values.map(({ shape }, i) => ({ shape, data: results[i]! }));
}

// Loading the runtime opens ports that stay.
Deno.test.beforeAll(async () => {
  const bytes = onnxModel(modelOf({ op: "Relu", x: [[1]] }));
  await (await InferenceSession.create(bytes)).release();
});

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
