import assert from "node:assert/strict";
import { openReference } from "../../../kernels/devices/reference/reference.ts";
import { openNative } from "../../../kernels/devices/native/native.ts";
import { erf } from "../../../kernels/devices/reference/elementwise.ts";
import { Graph } from "../../../kernels/graph/graph.ts";
import { testContract } from "./contract.ts";
import { modelOf, numbersOf, tensorOf } from "./models.ts";

testContract("reference", openReference);

Deno.test("the error function of the reference device has its tabulated values", () => {
  // Abramowitz and Stegun, Handbook of Mathematical Functions, table 7.1.
  const table = [[0, 0], [0.1, 0.1124629160], [0.5, 0.5204998778], [1, 0.8427007929]];
  for (const [x, want] of [...table, [2, 0.9953222650], [3, 0.9999779095], [7, 1]]) {
    assert.ok(Math.abs(erf(x!) - want!) < 1e-10, `erf ${x}`);
    assert.equal(erf(-x!), -erf(x!));
  }
});

Deno.test("the reference device refuses a label beyond the classes, as the native device does", async () => {
  for (const open of [openReference, openNative]) {
    const device = await open();
    try {
      const g = new Graph();
      const logits = g.input("logits", [2, 3]), targets = g.input("targets", [2], "i32");
      const loss = g.crossEntropy(logits, targets);
      const kernel = await device.compile(modelOf(g, { loss }));
      const labels = device.alloc("i32", [2]);
      const run = kernel.bind({ logits: device.alloc("f32", [2, 3]), targets: labels }, {
        loss: device.alloc("f32", [2]),
      });
      device.write(labels, Int32Array.of(2, -1));
      await run();
      for (const bad of [3, 99_999]) {
        device.write(labels, Int32Array.of(0, bad));
        await assert.rejects(run(), /GatherElements|Cannot use index/);
      }
    } finally {
      device.close();
    }
  }
});

Deno.test("the reference device stores outputs after every operation has read its inputs", async () => {
  const device = await openReference();
  try {
    const g = new Graph();
    const a = g.input("a", [2]), b = g.input("b", [2]);
    const kernel = await device.compile(modelOf(g, { first: g.add(a, b), second: g.sub(a, b) }));
    const left = tensorOf(device, [2], [5, 7]), right = tensorOf(device, [2], [1, 2]);
    await kernel.bind({ a: left, b: right }, { first: left, second: right })();
    assert.deepEqual(await numbersOf(device, left), [6, 9]);
    assert.deepEqual(await numbersOf(device, right), [4, 5]);
  } finally {
    device.close();
  }
});
