/** The native device: its memory, its runs, and models as it computes them. */

import assert from "node:assert/strict";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { adamwOf, openNative, prepareModel } from "../../../kernels/devices/cpu/native.ts";
import { KernelMemory, type NativeBytes, openOrt } from "../../../kernels/devices/cpu/ort_api.ts";
import { nativeLibraryPath } from "../../../kernels/devices/cpu/ort_library.ts";
import { openReference } from "../../../kernels/devices/reference.ts";
import { Graph } from "../../../kernels/ops/graph.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { type TensorSpec, TROUPE } from "../../../kernels/graph/value.ts";
import { shareEqual } from "../../../kernels/onnx/rewrite.ts";
import { ModelProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";
import { readSignature } from "../../../kernels/onnx/signature.ts";
import { ADAMW_DEFAULTS } from "../../../kernels/stage/options.ts";
import { stepModel } from "../../../kernels/stage/optimizer.ts";
import fc, { forAll } from "../../fast_check.ts";
import {
  closing,
  modelOf,
  numbersOf,
  pseudoRandom,
  runModel,
  square,
  tensorOf,
  withDevice,
} from "./models.ts";
import { assertNear } from "./operator_cases.ts";
import { differentiated } from "../graph/computed.ts";

Deno.test("native memory starts at multiples of 64 bytes and is zero", async () => {
  using ort = closing(openOrt(await nativeLibraryPath(), { threads: 1, isBlocking: false }));
  for (let byteLength = 0; byteLength < 200; byteLength++) {
    const memory = ort.allocate(byteLength);
    assert.equal(memory.bytes.byteLength, byteLength);
    assert.equal(memory.address % 64n, 0n);
    assert.ok(memory.bytes.every((byte) => byte === 0));
    memory.bytes.fill(255);
    ort.free(memory);
  }
});

Deno.test("the native device leaves the isolate free while it computes", () =>
  withDevice(openNative(), async (device) => {
    const g = new Graph(), a = g.input("a", [1024, 1024]);
    const kernel = await device.compile(modelOf(g, { y: g.gemm(g.gemm(a, a), a) }));
    const [from, y] = [1, 2].map(() => device.alloc("f32", [1024, 1024]));
    let isFinished = false;
    const running = kernel.bind({ a: from! }, { y: y! })().then(() => isFinished = true);
    // A task, not a microtask: a run that blocked would be finished by then.
    await new Promise((resolve) => setTimeout(resolve, 0));
    assert.equal(isFinished, false);
    await running;
  }));

Deno.test("several native kernels run at the same time on their own memory", () =>
  withDevice(openNative(), async (device) => {
    const g = new Graph(), a = g.input("a", [128, 128]);
    const kernel = await device.compile(modelOf(g, { y: g.gemm(a, a) }));
    const runs = [1, 2, 3, 4].map((number) => {
      const input = tensorOf(device, [128, 128], Array(128 ** 2).fill(number));
      const y = device.alloc("f32", [128, 128]);
      return { run: kernel.bind({ a: input }, { y }), y, want: 128 * number * number };
    });
    for (let round = 0; round < 20; round++) await Promise.all(runs.map(({ run }) => run()));
    for (const { y, want } of runs) {
      assert.deepEqual(await numbersOf(device, y), Array(128 ** 2).fill(want));
    }
  }));

Deno.test("several threads compute a product to 1e-4, and a gradient of GELU, cut otherwise, to the bit", async () => {
  const g = new Graph(), shape = [96, 4096], a = g.input("a", [256, 256]);
  const gelu = [g.input("dy", shape), g.input("x", shape)];
  const [dx] = g.node("FastGeluGrad", gelu, [shape], {}, TROUPE);
  const model = modelOf(g, { dx: dx!, y: g.gemm(a, a) });
  const [one, three] = await Promise.all([1, 3].map(async (threads) => {
    using device = closing(await openNative({ threads }));
    return await runModel(device, model, ({ shape }, i) => pseudoRandom(i, elementCount(shape)));
  }));
  assert.deepEqual(three!.get("dx"), one!.get("dx"));
  assertNear(three!.get("y")!, one!.get("y")!, 1e-4, "y");
});

const LARGE = 65_536;

/** A block of the library's memory. */
const elsewhere = (byteLength: number): NativeBytes => {
  const bytes = new Uint8Array(byteLength), allocation = Deno.UnsafePointer.of(bytes)!;
  return { allocation, address: Deno.UnsafePointer.value(allocation), bytes };
};

Deno.test("blocks for kernels are zero, aligned and apart, whatever was freed before", () => {
  const take = fc.record({ take: fc.integer({ min: LARGE, max: 6 * LARGE }) });
  const steps = fc.array(fc.oneof(take, fc.record({ free: fc.nat(9) })), { maxLength: 60 });
  return forAll(20, [steps], (steps) => {
    const memory = new KernelMemory(), blocks: { block: NativeBytes; mark: number }[] = [];
    for (const [i, step] of steps.entries()) {
      if ("take" in step) {
        const block = memory.allocate(step.take)!;
        assert.equal(block.bytes.byteLength, step.take);
        assert.equal(block.address % 64n, 0n);
        assert.ok(block.bytes.every((byte) => byte === 0));
        block.bytes.fill(i + 1);
        blocks.push({ block, mark: i + 1 });
      } else {
        const [freed] = blocks.splice(step.free, 1);
        if (freed) assert.ok(memory.free(freed.block));
      }
      for (const { block, mark } of blocks) {
        assert.ok(block.bytes[0] === mark && block.bytes.at(-1) === mark);
      }
    }
  });
});

Deno.test("memory for kernels that was freed is given out again, neighbours as one", () => {
  const memory = new KernelMemory();
  const blocks = Array.from({ length: 4 }, () => memory.allocate(LARGE)!);
  const last = memory.allocate(LARGE)!;
  for (const i of [2, 0, 3, 1]) memory.free(blocks[i]!);
  assert.equal(memory.allocate(4 * LARGE)!.address, blocks[0]!.address);
  assert.equal(memory.free(blocks[0]!), false, "it was freed before");
  assert.ok(memory.offsetOf(last)! > 0);
});

Deno.test("small blocks, and those for which there is no place, are in no memory for kernels", () => {
  const memory = new KernelMemory();
  assert.equal(memory.allocate(LARGE - 1), undefined);
  assert.equal(memory.allocate(2 ** 33), undefined);
  assert.equal(memory.free(elsewhere(8)), false);
  assert.equal(memory.offsetOf(elsewhere(8)), undefined);
  assert.ok(memory.allocate(LARGE));
});

Deno.test("AdamW is our kernel's where all arrays are in its memory, and only then", () => {
  const memory = new KernelMemory(), length = LARGE / 4, stored = [[length]];
  const shape = { stored, states: stored, moments: [stored, stored] };
  const model = stepModel(shape, ADAMW_DEFAULTS, false);
  const { inputs, outputs } = readSignature(model), bindOwn = adamwOf(model, memory)!;
  const place = (border: TensorSpec, isOwn: boolean) => {
    const byteLength = border.shape.length === 0 ? 4 : LARGE;
    const block = isOwn && memory.allocate(byteLength) || elsewhere(byteLength);
    return { ...border, block, byteOffset: 0, byteLength };
  };
  const all = (borders: readonly TensorSpec[], except?: string) =>
    borders.map((border) => place(border, border.name !== except));
  assert.ok(bindOwn(all(inputs), all(outputs)));
  for (const { name, shape } of [...inputs, ...outputs]) {
    if (shape.length > 0) assert.equal(bindOwn(all(inputs, name), all(outputs, name)), undefined);
  }
  assert.equal(adamwOf(square([length]), memory), undefined);
  const mixed = stepModel(shape, ADAMW_DEFAULTS, true);
  assert.equal(adamwOf(mixed, memory), undefined, "mixed precision");
  const { graph, ...rest } = fromBinary(ModelProtoSchema, model), [node] = graph!.node;
  const twice = toBinary(ModelProtoSchema, { ...rest, graph: { ...graph!, node: [node!, node!] } });
  assert.equal(adamwOf(twice, memory), undefined, "two steps");
});

/** The model of d loss/d inputs of y = build(inputs). */
function gradientModel(...[shapes, build]: Parameters<typeof differentiated>): Uint8Array {
  const { g, results: { y: _, ...gradients } } = differentiated(shapes, build);
  return modelOf(g, gradients);
}

/** Asserts that rewriting a model changes no more than the last bits; returns its operations. */
async function preparedOperations(model: Uint8Array): Promise<string[]> {
  const prepared = prepareModel(model), device = await openReference();
  const numbers = ({ shape }: TensorSpec, i: number) =>
    pseudoRandom(99 * i, elementCount(shape)).map((x) => 2 * Math.abs(x));
  const found = await runModel(device, prepared, numbers);
  for (const [name, wanted] of await runModel(device, model, numbers)) {
    assertNear(found.get(name)!, wanted, 2e-5, name);
  }
  return operations(prepared);
}

const operations = (model: Uint8Array) =>
  fromBinary(ModelProtoSchema, model).graph!.node.map(({ opType }) => opType!);

const count = (all: readonly string[], op: string) => all.filter((one) => one === op).length;

Deno.test("GELU's gradient is computed in parts that fit into a core's cache, with a rest of rows", async () => {
  const model = gradientModel([[67, 2048]], (g, x) => g.gelu(x!));
  assert.equal(count(await preparedOperations(model), "Sigmoid"), 3);
  assert.equal(count(operations(prepareModel(model, 2)), "Sigmoid"), 2, "each thread has a cache");
  const small = await preparedOperations(gradientModel([[8, 16]], (g, x) => g.gelu(x!)));
  assert.ok(!small.includes("Split"), "operations that fit into the cache are not divided");
});

Deno.test("the operand of a weight gradient is transposed first unless it is wider", async () => {
  for (const [inputs, outputs, isFirst] of [[8, 32, true], [8, 8, true], [32, 8, false]] as const) {
    const model = gradientModel([[16, inputs], [inputs, outputs]], (g, x, w) => g.gemm(x!, w!));
    const found = await preparedOperations(model);
    assert.equal(found.includes("Transpose"), isFirst, `${inputs} to ${outputs}`);
    assert.ok(!operations(prepareModel(model, 2)).includes("Transpose"), "with several threads");
  }
});

Deno.test("both gradients of a LayerNorm share the normalized values", async () => {
  const found = await preparedOperations(gradientModel(
    [[6, 16], [16], [16]],
    (g, x, weight, bias) => g.layerNorm(x!, weight!, bias!),
  ));
  assert.equal(count(found, "Sub"), 3); // x − μ once, and two within the gradient of x
  assert.equal(count(found, "ReduceMean"), 0);
});

Deno.test("equal nodes are merged, except nodes that compute outputs of the graph", () => {
  const g = new Graph(), x = g.input("x", [2]);
  const [a, b, c] = [g.exp(x), g.exp(x), g.exp(x)] as const;
  const model = fromBinary(ModelProtoSchema, modelOf(g, { sum: g.add(g.add(a, b), g.neg(a)), c }));
  shareEqual(model.graph!);
  const found = operations(toBinary(ModelProtoSchema, model)).sort();
  assert.deepEqual(found, ["Add", "Add", "Exp", "Exp", "Neg"]);
});
