/** Memory of the native device in which our kernels compute. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import type { Border } from "../../../kernels/onnx/signature.ts";
import { readSignature } from "../../../kernels/onnx/signature.ts";
import { adamwOf } from "../../../kernels/devices/native/adamw.ts";
import { openKernelMemory } from "../../../kernels/devices/native/kernel_memory.ts";
import type { NativeBytes } from "../../../kernels/devices/native/ort_memory.ts";
import { ADAMW_DEFAULTS } from "../../../kernels/optimizer/optimizer_options.ts";
import { stepModel } from "../../../kernels/optimizer/step_model.ts";
import { openDevice, type Tensor } from "../../../kernels/mod.ts";
import { testContract } from "./contract.ts";
import { modelOf, numbersOf, square } from "./models.ts";
import { Graph } from "../../../kernels/graph/graph.ts";

const LARGE = 65_536;

/** A block of the library's memory. */
const elsewhere = (byteLength: number): NativeBytes => {
  const bytes = new Uint8Array(byteLength), allocation = Deno.UnsafePointer.of(bytes)!;
  return { allocation, address: Deno.UnsafePointer.value(allocation), bytes };
};

Deno.test("blocks are zero, aligned and apart, whatever was freed before", () => {
  const steps = fc.array(
    fc.oneof(
      fc.record({ take: fc.integer({ min: LARGE, max: 6 * LARGE }) }),
      fc.record({ free: fc.nat(9) }),
    ),
    { maxLength: 60 },
  );
  fc.assert(
    fc.property(steps, (steps) => {
      const memory = openKernelMemory(), blocks: { block: NativeBytes; mark: number }[] = [];
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
    }),
    { numRuns: 20 },
  );
});

Deno.test("what was freed is given out again, neighbours as one, and nothing grows", () => {
  const memory = openKernelMemory();
  const blocks = Array.from({ length: 4 }, () => memory.allocate(LARGE)!);
  const last = memory.allocate(LARGE)!;
  for (const i of [2, 0, 3, 1]) memory.free(blocks[i]!);
  assert.equal(memory.allocate(4 * LARGE)!.address, blocks[0]!.address);
  assert.equal(memory.free(blocks[0]!), false, "it was freed before");
  assert.ok(memory.offsetOf(last)! > 0);
});

Deno.test("small blocks, and those for which there is no place, lie elsewhere", () => {
  const memory = openKernelMemory();
  assert.equal(memory.allocate(LARGE - 1), undefined);
  assert.equal(memory.allocate(2 ** 33), undefined);
  assert.equal(memory.free(elsewhere(8)), false);
  assert.equal(memory.offsetOf(elsewhere(8)), undefined);
  assert.ok(memory.allocate(LARGE));
});

Deno.test("AdamW is our kernel's where all arrays lie in its memory, and only then", () => {
  const memory = openKernelMemory(), length = LARGE / 4;
  const model = stepModel(length, ADAMW_DEFAULTS, false);
  const { inputs, outputs } = readSignature(model), bindOwn = adamwOf(model, memory)!;
  const place = (border: Border, isOwn: boolean) => {
    const byteLength = border.shape.length === 0 ? 4 : LARGE;
    const block = isOwn && memory.allocate(byteLength) || elsewhere(byteLength);
    return { ...border, block, byteOffset: 0, byteLength };
  };
  const all = (borders: readonly Border[], except?: string) =>
    borders.map((border) => place(border, border.name !== except));
  assert.ok(bindOwn(all(inputs), all(outputs)));
  for (const { name, shape } of [...inputs, ...outputs]) {
    if (shape.length > 0) assert.equal(bindOwn(all(inputs, name), all(outputs, name)), undefined);
  }
  assert.equal(adamwOf(square([length]), memory), undefined);
  assert.equal(
    adamwOf(stepModel(length, ADAMW_DEFAULTS, true), memory),
    undefined,
    "mixed precision",
  );
});

Deno.test("a native device that blocks computes on memory of our kernels as on any other", async () => {
  const device = await openDevice("native", { isBlocking: true });
  try {
    const g = new Graph(), n = 300, a = g.input("a", [n, n]);
    const kernel = await device.compile(modelOf(g, { y: g.gemm(a, a) }));
    const tensors = Array.from({ length: 2 }, () => device.alloc("f32", [n, n]));
    const [input, y] = tensors as [Tensor, Tensor];
    device.write(input, new Float32Array(n * n).fill(2));
    await kernel.bind({ a: input }, { y })();
    assert.ok((await numbersOf(device, y)).every((value) => value === 4 * n));
    device.free(input);
    assert.ok((await numbersOf(device, device.alloc("f32", [n, n]))).every((value) => value === 0));
  } finally {
    device.close();
  }
});

testContract("native", () => openDevice("native", { isBlocking: true }));
