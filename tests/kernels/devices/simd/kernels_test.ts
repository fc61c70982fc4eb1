/** Each kernel of ours against the reference device, wherever its rows lie. */

import assert from "node:assert/strict";
import fc from "../../../fast_check.ts";
import { type Attribute, MICROSOFT, TROUPE } from "../../../../kernels/graph/value.ts";
import {
  type Device,
  type DType,
  Graph,
  openDevice,
  type Tensor,
} from "../../../../kernels/mod.ts";
import { cutModel } from "../../../../kernels/devices/simd/cut_model.ts";
import { elementCount } from "../../../../kernels/graph/shapes.ts";
import { hostArray, modelOf, numbersOf, pseudoRandom } from "../models.ts";

/** Of results, relative to the larger of 1 and what must be: the bound of all devices. */
const TOLERANCE = 2e-6;

interface Operand {
  readonly shape: readonly number[];
  readonly dtype?: DType;
  /** Of a random number from −1 to 1. */
  readonly of?: (random: number) => number;
}

interface Case {
  readonly op: string;
  readonly domain?: string;
  readonly inputs: readonly Operand[];
  readonly outputs: readonly (readonly number[])[];
  /** The input over which the first output may lie. */
  readonly over?: number;
  readonly attributes?: Readonly<Record<string, Attribute>>;
}

const positive = (random: number) => random + 1.5;
const MASK = -1e30;
const masked = (random: number) => random > 0.5 ? MASK : 8 * random;

const CASES: Record<string, (rows: number, columns: number) => Case> = {
  Softmax: (n, m) => ({
    op: "Softmax",
    inputs: [{ shape: [n, m], of: masked }],
    outputs: [[n, m]],
    over: 0,
  }),
  LogSoftmax: (n, m) => ({
    op: "LogSoftmax",
    inputs: [{ shape: [n, m], of: (random) => 20 * random }],
    outputs: [[n, m]],
    over: 0,
  }),
  SoftmaxGrad: (n, m) => ({
    op: "SoftmaxGrad",
    domain: TROUPE,
    inputs: [{ shape: [n, m] }, { shape: [n, m], of: (random) => Math.abs(random) / m }],
    outputs: [[n, m]],
    over: 0,
  }),
  FastGelu: (n, m) => ({
    op: "FastGelu",
    domain: MICROSOFT,
    inputs: [{ shape: [n, m], of: (random) => 6 * random }],
    outputs: [[n, m]],
    over: 0,
  }),
  FastGeluGrad: (n, m) => ({
    op: "FastGeluGrad",
    domain: TROUPE,
    inputs: [{ shape: [n, m] }, { shape: [n, m], of: (random) => 6 * random }],
    outputs: [[n, m]],
    over: 1,
  }),
  LayerNormalization: (n, m) => ({
    op: "LayerNormalization",
    inputs: [{ shape: [n, m] }, { shape: [m] }, { shape: [m] }],
    outputs: [[n, m], [n, 1], [n, 1]],
    attributes: { axis: -1, epsilon: { float: 0.25 } },
    over: 0,
  }),
  LayerNormInputGrad: (n, m) => ({
    op: "LayerNormInputGrad",
    domain: TROUPE,
    inputs: [
      ...[{ shape: [n, m] }, { shape: [n, m] }, { shape: [n, 1] }],
      ...[{ shape: [n, 1], of: positive }, { shape: [m] }],
    ],
    outputs: [[n, m]],
    over: 0,
  }),
  LayerNormWeightGrad: (n, m) => ({
    op: "LayerNormWeightGrad",
    domain: TROUPE,
    inputs: [
      ...[{ shape: [n, m] }, { shape: [n, m] }, { shape: [n, 1] }],
      { shape: [n, 1], of: positive },
    ],
    outputs: [[m], [m]],
  }),
  ReduceSumSquare: (n, m) => ({
    op: "ReduceSumSquare",
    inputs: [{ shape: [n * m] }],
    outputs: [[]],
    attributes: { keepdims: 0 },
  }),
  CrossEntropy: (n, m) => ({
    op: "CrossEntropy",
    domain: TROUPE,
    inputs: [{ shape: [n, m], of: (random) => 20 * random }, targets(n, m)],
    outputs: [[n]],
  }),
};

/** Products: `rows` and `columns` are also sizes of their depth, and of axes before. */
for (const transA of [0, 1]) {
  for (const transB of [0, 1]) {
    const shapes = (n: number, m: number, k: number) => [
      { shape: transA ? [k, n] : [n, k] },
      { shape: transB ? [m, k] : [k, m] },
    ];
    const attributes = { transA, transB, alpha: { float: 0.75 } };
    CASES[`Gemm ${transA}${transB}`] = (n, m) => ({
      op: "Gemm",
      inputs: [...shapes(n, m, n + 1), { shape: [n, m] }],
      outputs: [[n, m]],
      attributes,
      over: 2,
    });
    CASES[`Gemm ${transA}${transB} and a row`] = (n, m) => ({
      op: "Gemm",
      inputs: [...shapes(n, m, Math.ceil(m / 2)), { shape: [m] }],
      outputs: [[n, m]],
      attributes,
    });
    CASES[`FusedMatMul ${transA}${transB}`] = (n, m) => ({
      op: "FusedMatMul",
      domain: MICROSOFT,
      inputs: shapes(n, m, m + 2).map(({ shape }) => ({ shape: [2, 3, ...shape] })),
      outputs: [[2, 3, n, m]],
      attributes,
    });
  }
}

/** Classes from −1, which means none. */
const targets = (rows: number, classes: number): Operand => ({
  shape: [rows],
  dtype: "i32",
  of: (random) => Math.min(classes - 1, Math.floor((random + 1) / 2 * (classes + 1)) - 1),
});

const modelFor = ({ op, domain, inputs, outputs, attributes }: Case) => {
  const g = new Graph();
  const given = inputs.map(({ shape, dtype }, i) => g.input(`x${i}`, shape, dtype));
  const results = g.node(op, given, outputs, attributes, domain);
  return modelOf(g, Object.fromEntries(results.map((value, i) => [`y${i}`, value])));
};

/** How a case is computed. */
interface Layout {
  readonly seed: number;
  /** Elements before each tensor in its memory: an odd number of them is no multiple of a vector. */
  readonly skipped: number;
  readonly isInPlace: boolean;
}

async function compute(device: Device, given: Case, { seed, skipped, isInPlace }: Layout) {
  const kernel = await device.compile(modelFor(given)), owners: Tensor[] = [];
  const place = (dtype: DType, shape: readonly number[]) => {
    const owner = device.alloc(dtype, [skipped + elementCount(shape)]);
    owners.push(owner);
    return device.view(owner, skipped, shape);
  };
  const inputs = given.inputs.map(({ shape, dtype = "f32", of = (random) => random }, i) => {
    const tensor = place(dtype, shape), random = pseudoRandom(seed + 999 * i, elementCount(shape));
    device.write(tensor, hostArray(dtype, random.map(of)));
    return tensor;
  });
  const outputs = given.outputs.map((shape, i) =>
    isInPlace && i === 0 && given.over !== undefined ? inputs[given.over]! : place("f32", shape)
  );
  const named = (letter: string, tensors: readonly Tensor[]) =>
    Object.fromEntries(tensors.map((tensor, i) => [`${letter}${i}`, tensor]));
  await kernel.bind(named("x", inputs), named("y", outputs))();
  const results = await Promise.all(outputs.map((tensor) => numbersOf(device, tensor)));
  kernel.close();
  owners.forEach((owner) => device.free(owner));
  return results;
}

const layoutArb = fc.record({
  seed: fc.nat(),
  skipped: fc.integer({ min: 0, max: 5 }),
  isInPlace: fc.boolean(),
});

Deno.test("each kernel computes on wasm as the reference does, in place too, wherever rows lie", async (t) => {
  const device = await openDevice("wasm"), judge = await openDevice("reference");
  try {
    for (const [name, caseOf] of Object.entries(CASES)) {
      await t.step(name, () =>
        fc.assert(
          fc.asyncProperty(
            fc.integer({ min: 0, max: 5 }),
            fc.integer({ min: 1, max: 71 }),
            layoutArb,
            async (rows, columns, layout) => {
              const given = caseOf(rows, columns);
              assert.ok(cutModel(modelFor(given)), "no kernel of ours");
              const results = await compute(device, given, layout);
              if (rows === 0) return; // Of which the reference makes something now and then.
              const wanted = await compute(judge, given, layout);
              wanted.forEach((numbers, output) =>
                numbers.forEach((want, i) => {
                  const got = results[output]![i]!;
                  const distance = Math.abs(got - want) / Math.max(1, Math.abs(want));
                  assert.ok(distance <= TOLERANCE, `y${output}[${i}] is ${got}, must be ${want}`);
                  if (want === 0 && name === "Softmax") assert.equal(got, 0);
                })
              );
            },
          ),
          { numRuns: 40 },
        ));
    }
    assert.equal(device.allocatedBytes, 0);
  } finally {
    device.close();
    judge.close();
  }
});
