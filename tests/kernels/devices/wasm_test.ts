import assert from "node:assert/strict";
import { openWasm } from "../../../kernels/devices/wasm/wasm.ts";
import { testContract } from "./contract.ts";
import { numbersOf, square, tensorOf } from "./models.ts";

testContract("wasm", openWasm);

Deno.test("the wasm device keeps tensors and bound kernels when its heap grows", async () => {
  const device = await openWasm();
  try {
    const kernel = await device.compile(square([2]));
    const x = tensorOf(device, [2], [3, 4]), y = device.alloc("f32", [2]);
    const run = kernel.bind({ x }, { y });
    const large = device.alloc("f32", [32 * 1024 * 1024]); // 128 MB; the heap starts at 16 MB.
    device.write(device.view(large, 32 * 1024 * 1024 - 1, [1]), Float32Array.of(1));
    await run();
    assert.deepEqual(await numbersOf(device, x), [3, 4]);
    assert.deepEqual(await numbersOf(device, y), [9, 16]);
  } finally {
    device.close();
  }
});

Deno.test("the wasm device says that its heap is full and stays usable", async () => {
  const device = await openWasm();
  try {
    assert.throws(() => device.alloc("f32", [2 ** 30]), RangeError);
    assert.deepEqual(await numbersOf(device, tensorOf(device, [2], [3, 4])), [3, 4]);
  } finally {
    device.close();
  }
});

Deno.test("opening wasm devices leaves the global Worker alone", async () => {
  const { Worker } = globalThis;
  let opening = true;
  const watching = (async () => {
    while (opening) {
      assert.equal(globalThis.Worker, Worker);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  })();
  const devices = await Promise.all([openWasm(), openWasm()]);
  opening = false;
  await watching;
  for (const device of devices) device.close();
  assert.equal(globalThis.Worker, Worker);
  assert.equal(Object.getOwnPropertyDescriptor(globalThis, "Worker")!.writable, true);
});
