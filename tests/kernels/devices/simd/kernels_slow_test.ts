/** Each kernel of ours against the reference device and ONNX Runtime, wherever its rows are. */

import assert from "node:assert/strict";
import { cutAtSimd } from "../../../../kernels/devices/cpu/simd.ts";
import {
  type KernelName,
  kernelsModule,
  loadKernels,
} from "../../../../kernels/devices/cpu/simd.ts";
import { buildKernels } from "../../../../kernels/devices/cpu/build_simd.ts";
import { elementCount } from "../../../../kernels/graph/shapes.ts";
import { type Attribute, type TensorSpec, TROUPE } from "../../../../kernels/graph/value.ts";
import {
  type Device,
  type DType,
  Graph,
  type HostArray,
  openDevice,
  type Tensor,
} from "../../../../kernels/mod.ts";
import { lowerModel } from "../../../../kernels/onnx/lower.ts";
import { readSignature } from "../../../../kernels/onnx/signature.ts";
import { ADAMW_DEFAULTS } from "../../../../kernels/stage/options.ts";
import { scalarValues, stepModel } from "../../../../kernels/stage/optimizer.ts";
import { atDepth } from "../../../depth.ts";
import fc from "../../../fast_check.ts";
import { closing, hostArray, modelOf, pseudoRandom, runModel, withDevice } from "../models.ts";
import {
  assertNear,
  modelFor,
  numbersFor,
  type OperatorCase,
  parseCase,
  type Sizes,
} from "../operator_cases.ts";
import table from "./kernel_cases.json" with { type: "json" };

/** Of results, relative to the larger of 1 and what must be: the bound of all devices. */
const TOLERANCE = 2e-6;

/** A case, and the input over which its first output may be. */
type Row = readonly [io: string, over: number | null, attributes?: Record<string, Attribute>];
const CASES = table as unknown as Readonly<Record<string, Row>>;

function caseOf(name: string, sizes: Sizes): OperatorCase {
  const [io, _, attributes] = CASES[name]!, one = parseCase(name, io, sizes, attributes);
  return /Grad$|^CrossEntropy$/.test(one.op) ? { ...one, domain: TROUPE } : one;
}

/** Addresses of tensors. */
interface Layout {
  /** Elements before each tensor in its memory: an odd number of them is no multiple of a vector. */
  readonly skipped: number;
  /** The input over which an output is. */
  readonly over: (output: string) => string | undefined;
}

/** Computes the outputs of a model from numbers for its inputs; frees all. */
async function compute(
  device: Device,
  model: Uint8Array,
  given: Readonly<Record<string, HostArray>>,
  { skipped, over }: Layout,
): Promise<Float32Array<ArrayBuffer>[]> {
  using kernel = closing(await device.compile(model));
  const { inputs, outputs } = readSignature(model), owners: Tensor[] = [];
  const place = (dtype: DType, shape: readonly number[]) => {
    const owner = device.alloc(dtype, [skipped + elementCount(shape)]);
    owners.push(owner);
    return device.view(owner, skipped, shape);
  };
  const read = Object.fromEntries(inputs.map(({ name, dtype, shape }) => {
    const tensor = place(dtype, shape);
    device.write(tensor, given[name]!);
    return [name, tensor];
  }));
  const written = Object.fromEntries(
    outputs.map(({ name, shape }) => [name, read[over(name) ?? ""] ?? place("f32", shape)]),
  );
  await kernel.bind(read, written)();
  const results = await Promise.all(
    Object.values(written).map((tensor) => device.read<Float32Array<ArrayBuffer>>(tensor)),
  );
  owners.forEach((owner) => device.free(owner));
  return results;
}

Deno.test("each kernel computes on wasm as the reference does, in place too, wherever rows are", (t) =>
  withDevice(openDevice("wasm"), async (device) => {
    using judge = closing(await openDevice("reference"));
    const size = (min: number, max: number) => fc.integer({ min, max });
    const layouts = fc.record({ skipped: size(0, 5), isInPlace: fc.boolean(), seed: fc.nat() });
    const sizes = fc.record({ n: size(0, 5), m: size(1, 71), k: size(1, 40), b: fc.constant(2) });
    for (const [name, [, input]] of Object.entries(CASES)) {
      const property = fc.asyncProperty(sizes, layouts, async (sizes, layout) => {
        const one = caseOf(name, sizes), model = modelFor(one), { skipped, seed } = layout;
        assert.ok(cutAtSimd(model), "no kernel of ours");
        const given = Object.fromEntries(one.inputs.map((operand, i) => [
          `x${i}`,
          hostArray(operand.dtype, numbersFor(operand, seed + 999 * i)),
        ]));
        const isOver = (output: string) => layout.isInPlace && input !== null && output === "y0";
        const places = { skipped, over: (y: string) => isOver(y) ? `x${input}` : undefined };
        const results = await compute(device, model, given, places);
        if (sizes.n === 0) return; // Of which the reference makes something now and then.
        const wanted = await compute(judge, model, given, places);
        wanted.forEach((numbers, y) => assertNear(results[y]!, numbers, TOLERANCE, `y${y}`));
      });
      await t.step(name, () => fc.assert(property, { numRuns: atDepth(8, 200) }));
    }
    assert.equal(device.allocatedBytes, 0);
  }));

/** a·b + c, where a is [m, k] and b is [k, n]. */
async function product(device: Device, [m, n, k]: readonly [number, number, number]) {
  const g = new Graph(), a = g.input("a", [m, k]), b = g.input("b", [k, n]), c = g.input("c", [n]);
  const numbers = ({ shape }: TensorSpec, i: number) => pseudoRandom(1 + i, elementCount(shape));
  return (await runModel(device, modelOf(g, { y: g.gemm(a, b, c) }), numbers)).get("y")!;
}

Deno.test("products on wasm are right on both sides of the borders of their blocks", () =>
  withDevice(openDevice("wasm"), async (device) => {
    const near = (border: number) => fc.integer({ min: border - 3, max: border + 13 });
    const sizes = fc.oneof(
      fc.tuple(near(128), near(512), near(256)),
      fc.tuple(fc.integer({ min: 1, max: 9 }), near(512), near(512)),
      fc.tuple(near(256), fc.integer({ min: 1, max: 30 }), near(256)),
    );
    using judge = closing(await openDevice("native"));
    await fc.assert(
      fc.asyncProperty(sizes, async (sizes) => {
        assertNear(await product(device, sizes), await product(judge, sizes), 1e-4, "y");
      }),
      { numRuns: atDepth(8, 40) },
    );
    const [k, n] = [300, 40], rows = await product(device, [300, n, k]);
    for (const m of [1, 3, 130]) {
      const some = await product(device, [m, n, k]);
      assert.deepEqual(some, rows.slice(0, m * n), "bits of a row depend on how many there are");
    }
  }));

const NAMES = ["w", "d", "m0", "m1"];

/** Any f32 that there is: zeros of both signs, denormals, infinities and NaN among them. */
const stepArb = fc.integer({ min: 0, max: 67 }).chain((length) =>
  fc.record({
    arrays: fc.tuple(
      ...NAMES.map(() => fc.array(fc.float(), { minLength: length, maxLength: length })),
    ),
    scale: fc.float({ min: -2, max: 2, noNaN: true }),
    step: fc.integer({ min: 1, max: 100_000 }),
    isInPlace: fc.boolean(),
    skipped: fc.integer({ min: 0, max: 3 }),
  })
);

/** Repeats numbers if arrays must be long enough for our kernel. */
const STEPPED = [
  { name: "wasm", open: () => openDevice("wasm"), repeated: 1 },
  { name: "native", open: () => openDevice("native", { isBlocking: true }), repeated: 400 },
];

for (const { name, open, repeated } of STEPPED) {
  Deno.test(`AdamW in one pass on ${name} has the bits of ONNX Runtime's operations`, () =>
    withDevice(open(), async (device) => {
      const property = fc.asyncProperty(stepArb, async (given) => {
        const arrays = given.arrays.map((one) =>
          Float32Array.from(Array.from({ length: repeated }, () => one).flat())
        );
        const scalars = scalarValues(ADAMW_DEFAULTS, given.step, 1e-3, given.scale, true);
        const inputs = Object.fromEntries([
          ...NAMES.map((name, i) => [name, arrays[i]!]),
          ...Object.entries(scalars).map(([name, value]) => [name, Float32Array.of(value)]),
        ]);
        const layout = {
          skipped: given.skipped,
          over: (output: string) => given.isInPlace ? output.slice(0, -1) : undefined,
        };
        const stored = [[arrays[0]!.length]], shape = { stored, states: stored };
        const step = stepModel({ ...shape, moments: [stored, stored] }, ADAMW_DEFAULTS, false);
        const [own, wanted] = [step, lowerModel(step)].map(async (model) =>
          // One NaN is as good as another.
          (await compute(device, model, inputs, layout)).map((values) =>
            new Uint32Array(values.map((value) => Number.isNaN(value) ? NaN : value).buffer)
          )
        );
        assert.deepEqual(await own, await wanted);
      });
      await fc.assert(property, { numRuns: atDepth(20, 500) });
      assert.equal(device.allocatedBytes, 0);
    }));
}

const memory = new WebAssembly.Memory({ initial: 64, maximum: 65_536, shared: true });
const kernels = loadKernels(memory);

/** Places for numbers, one behind the other. */
function places(...lengths: number[]): Float32Array[] {
  let at = 0;
  return lengths.map((length) => {
    const place = new Float32Array(memory.buffer, at, length);
    at += 4 * length;
    return place;
  });
}

/** Applies an elementwise kernel. */
function apply(name: KernelName, ...inputs: Float32Array[]): Float32Array {
  const count = inputs[0]!.length;
  const [y, ...given] = places(count, ...inputs.map(({ length }) => length));
  inputs.forEach((numbers, i) => given[i]!.set(numbers));
  kernels[name](count, ...given.map(({ byteOffset }) => byteOffset), y!.byteOffset);
  return y!.slice();
}

/** eˣ as the ratio of the softmax of x and 0, which are rounded twice more. */
function exponentials(x: Float32Array): Float64Array {
  const [rows, y] = places(2 * x.length, 2 * x.length);
  rows!.fill(0);
  x.forEach((value, i) => rows![2 * i] = value);
  kernels.softmax(x.length, 2, rows!.byteOffset, y!.byteOffset);
  return Float64Array.from(x, (_, i) => y![2 * i]! / y![2 * i + 1]!);
}

const evenly = (from: number, to: number, count: number) =>
  Float32Array.from({ length: count }, (_, i) => from + (to - from) * i / (count - 1));

/** The distance in units in the last place of what must be. */
const unitsOff = (got: number, want: number) =>
  Math.abs(got - want) / 2 ** (Math.floor(Math.log2(Math.abs(want))) - 23);

const SPECIAL = Float32Array.of(0, -0, -1e30, -Infinity, NaN, -88, -1e-30, -1e-45);

Deno.test("the exponential is within three units in the last place, and 0 far below", () => {
  for (const [from, to] of [[-87.3, 0.7], [-2, 0], [-0.4, 0.4], [-1e-4, 1e-4]] as const) {
    const x = evenly(from, to, atDepth(20_001, 100_001));
    exponentials(x).forEach((got, i) => {
      if (unitsOff(got, Math.exp(x[i]!)) > 3) assert.fail(`e^${x[i]} is ${got}`);
    });
  }
  assert.ok(exponentials(evenly(-1000, -88, 1000)).every((got) => got === 0));
  assert.ok(exponentials(evenly(-88, -87.3, 1000)).every((got) => got >= 0 && got < 2e-38));
  assert.deepEqual([...exponentials(SPECIAL)], [1, 1, 0, 0, NaN, 0, 1, 1]);
});

const SLOPE = Math.sqrt(2 / Math.PI), CUBIC = 0.044715;
/** 1/(1 + e⁻²ᵘ). */
const half = (x: number) => 1 / (1 + Math.exp(-2 * SLOPE * (x + CUBIC * x ** 3)));

Deno.test("GELU and its gradient are within 1e-6 of the larger of 1 and x, and nothing where x is not", () => {
  for (const [from, to] of [[-12, 12], [-1, 1], [-1e4, 1e4], [-1e-20, 1e-20]] as const) {
    const x = evenly(from, to, atDepth(10_001, 50_001)), dy = x.map(() => 1);
    const y = apply("gelu", x), dx = apply("geluGrad", dy, x);
    x.forEach((x, i) => {
      const h = half(x), bound = 1e-6 * Math.max(1, Math.abs(x));
      const slope = h + 2 * x * h * (1 - h) * SLOPE * (1 + 3 * CUBIC * x ** 2);
      if (!(Math.abs(y[i]! - x * h) <= bound)) assert.fail(`GELU(${x}) is ${y[i]}`);
      if (!(Math.abs(dx[i]! - slope) <= bound)) assert.fail(`GELU'(${x}) is ${dx[i]}`);
    });
  }
  assert.deepEqual([...apply("gelu", Float32Array.of(NaN, Infinity, 0))], [NaN, Infinity, 0]);
  const slopes = apply("geluGrad", Float32Array.of(1, 1), Float32Array.of(NaN, 0));
  assert.deepEqual([...slopes], [NaN, 0.5]);
});

Deno.test("the logarithm of a sum has the digits of f32, of one class and of many", () => {
  for (const classes of [1, 2, 3, 7, 1000, 50_257]) {
    const [x, y] = places(classes, classes);
    x!.fill(3);
    kernels.logSoftmax(1, classes, x!.byteOffset, y!.byteOffset);
    const want = -Math.log(classes);
    assert.ok(Math.abs(y![0]! - want) <= 1e-6 * Math.max(1, -want), `${y![0]} and ${want}`);
  }
});

Deno.test("a row with NaN has a loss of NaN, and other rows are unchanged", () => {
  const [x, y] = places(15, 15);
  x!.set([1, NaN, 3, 4, 5, 1, 2, 3, 4, 5, -Infinity, -1e30, 0, 0, 0]);
  kernels.softmax(3, 5, x!.byteOffset, y!.byteOffset);
  assert.ok(y!.slice(0, 5).every(Number.isNaN));
  assert.ok(Math.abs(y!.slice(5, 10).reduce((sum, one) => sum + one) - 1) < 1e-6);
  assert.deepEqual(y!.slice(10), Float32Array.of(0, 0, 1 / 3, 1 / 3, 1 / 3));
});

Deno.test("the module of kernels is what their source builds: deno task simd", async () => {
  assert.deepEqual(kernelsModule(), new Uint8Array(await buildKernels()));
});
