/**
 * A program that ends, as its argument says, while the GPU still works for it; or whose isolates want
 * the GPU one after the other; or that asks for more than an adapter has. It prints what the test must
 * see, or throws.
 */

import assert from "node:assert/strict";
import { print } from "../../../../console/terminal.ts";
import type { Device } from "../../../../kernels/devices/device.ts";
import { openDevice, resolveDevices } from "../../../../kernels/devices/table.ts";
import type { Adapter } from "../../../../kernels/devices/webgpu/vulkan.ts";
import { webgpuAdapters } from "../../../../kernels/devices/webgpu/adapters.ts";
import { openWebgpu } from "../../../../kernels/devices/webgpu/webgpu.ts";
import { Graph } from "../../../../kernels/ops/graph.ts";
import { modelOf, numbersOf, runModel, tensorOf, withDevice } from "../models.ts";

const SIZE = 256;
const scope = self as unknown as Worker & { name: string };

/** Opens the GPU and gives it work for a while. */
async function work(): Promise<Device> {
  const device = await openDevice("webgpu");
  const g = new Graph(), x = g.input("x", [SIZE, SIZE]);
  let y = x;
  for (let i = 0; i < 2; i++) y = g.matmul(y, x);
  const kernel = await device.compile(modelOf(g, { y }));
  const [from, to] = [device.alloc("f32", [SIZE, SIZE]), device.alloc("f32", [SIZE, SIZE])];
  const run = kernel.bind({ x: from }, { y: to });
  for (let i = 0; i < 4; i++) await run();
  return device;
}

/** Starts this module as a worker; waits for its word. */
async function start(name: string): Promise<{ worker: Worker; word: string }> {
  const worker = new Worker(import.meta.url, { type: "module", name });
  const { promise, resolve } = Promise.withResolvers<string>();
  worker.onmessage = ({ data }) => resolve(data);
  return { worker, word: await promise };
}

const opens = () =>
  openDevice("webgpu").then((device) => (device.close(), "opened"), ({ message }) => message);

/** Opens the second adapter of the machine, and tries the first one too. */
async function twoAdapters(): Promise<void> {
  const [second, first] = await resolveDevices("webgpu", { adapters: [1, 0] });
  const refusal = () => openDevice("webgpu", first).catch(({ message }) => message);
  const refusals = await withDevice(openDevice("webgpu", second), async (device) => {
    const tensor = tensorOf(device, [2], [3, 4]), refused = await refusal();
    assert.deepEqual(await numbersOf(device, tensor), [3, 4]);
    return [refused, await refusal()];
  });
  const drivers = [second, first!].map(({ adapter }) => adapter!.environment["VK_DRIVER_FILES"]);
  // The libraries of drivers that this process has loaded.
  const maps = Deno.readTextFileSync("/proc/self/maps").matchAll(/\S+\/[01]\.so$/gm);
  const loaded = [...new Set(Array.from(maps, ([path]) => path))];
  const visible = Deno.env.get("VK_DRIVER_FILES");
  print(JSON.stringify({ drivers, visible, loaded, refusals }));
}

const GIB = 2 ** 30, UNIT = 16;

type Use = (device: Device, name: string) => Promise<void> | void;

/** Uses a device whose adapter is said to be another one. */
async function withAdapter(said: Partial<Adapter>, use: Use): Promise<void> {
  const adapter = { ...(await webgpuAdapters()).adapters[0]!, ...said };
  await withDevice(openWebgpu({ adapter }), (device) => use(device, RegExp.escape(adapter.name)));
}

/** y = Σ of `rows` copies of x, of which the copies are in memory. */
function sumOfCopies(rows: number, columns: number): Uint8Array {
  const g = new Graph(), x = g.input("x", [columns]);
  const copies = g.exp(g.expand(g.reshape(x, [1, columns]), [rows, columns]));
  return modelOf(g, { y: g.sum(copies, [0]) });
}

const refused = (text: string) => ({ name: "RangeError", message: new RegExp(`^${text}$`) });

/** Refuses what does not fit on an adapter, and never computes it as zeros. */
async function limits(): Promise<void> {
  assert.equal((await webgpuAdapters()).adapters[0]!.maxBufferBytes, GIB - UNIT);
  await withAdapter({}, async (device, name) => {
    const largest = device.alloc("f32", [(GIB - UNIT) / 4]), begin = device.view(largest, 0, [2]);
    device.write(begin, Float32Array.of(3, 4));
    assert.deepEqual(await numbersOf(device, begin), [3, 4]);
    device.free(largest);
    const message =
      `Cannot allocate on the webgpu device: a tensor must fit into the largest buffer of ${name}, 1023.99 MiB, received 1024.00 MiB; take a smaller micro-batch or a smaller model`;
    assert.throws(() => device.alloc("f32", [GIB / 4]), refused(message));
  });
  // The GPU refuses where the size is not known.
  await withAdapter({ maxBufferBytes: Infinity }, async (device, name) => {
    const message =
      `Cannot allocate on the webgpu device: ${name} must have memory for \\d+\\.00 MiB, received too little; take [^\\n]*`;
    for (const size of [GIB / 4, GIB]) {
      assert.throws(() => device.alloc("f32", [size]), refused(message));
    }
    const tensor = tensorOf(device, [2], [1, 2]);
    assert.deepEqual(await numbersOf(device, tensor), [1, 2], "the device goes on");
    assert.equal(device.allocatedBytes, 8);
  });
  await limitsBetween(512, 1024);
}

/** Refuses what a model computes in between: when it is compiled, or when it runs. */
async function limitsBetween(rows: number, columns: number): Promise<void> {
  const model = sumOfCopies(rows, columns), bytes = 4 * rows * columns;
  await withAdapter({ maxBufferBytes: bytes - UNIT }, (device, name) => {
    const message =
      `Cannot compile the model for webgpu: a tensor must fit into the largest buffer of ${name}, 1.99 MiB, received 2.00 MiB for its value \\S+ \\[512,1024\\]; take .*`;
    return assert.rejects(device.compile(model), refused(message));
  });
  await withAdapter({ maxBufferBytes: bytes }, async (device) => {
    const y = (await runModel(device, model, () => Array(columns).fill(0))).get("y");
    assert.deepEqual(y, Array(columns).fill(rows));
  });
  await withAdapter({ maxBufferBytes: Infinity }, async (device, name) => {
    const kernel = await device.compile(sumOfCopies(GIB / 4 / columns, columns));
    const [x, y] = [1, 2].map(() => device.alloc("f32", [columns]));
    const message =
      `Cannot run the model on webgpu: ${name} must have memory for intermediate values, received too little; take [^\\n]*`;
    await assert.rejects(kernel.bind({ x: x! }, { y: y! }), refused(message));
  });
}

const ENDS: Readonly<Record<string, () => Promise<unknown>>> = {
  natural: work,
  throw: () =>
    work().then(() =>
      void setTimeout(() => {
        throw new Error("thrown");
      })
    ),
  async "another isolate's exit"() {
    await start("works");
    Deno.exit(5);
  },
  /** The next isolate waits for the last call of a terminated isolate. */
  async "owner terminated"() {
    const { worker } = await start("works");
    print(await opens());
    worker.terminate();
    print(await opens());
  },
  async "owner is main"() {
    const device = await openDevice("webgpu");
    const { worker, word } = await start("opens");
    print(word);
    worker.terminate();
    const args = ["run", "-A", "--no-check", import.meta.url, "a child"];
    const child = await new Deno.Command(Deno.execPath(), { args }).output();
    print(new TextDecoder().decode(child.stdout).trim());
    device.close();
    const next = await start("opens");
    print(next.word);
    next.worker.terminate();
  },
  "a child": async () => print(await opens()),
  /** Reads until the GPU is lost; and once more when it was closed and opened. */
  async lost() {
    for (let opened = 0; opened < 2; opened++) {
      const device = await openDevice("webgpu"), tensor = device.alloc("f32", [4]);
      const reading = async () => {
        for (let reads = 0; reads < 100; reads++) await device.read(tensor);
        return { message: "never lost" };
      };
      print((await reading().catch((error: Error) => error)).message);
      device.close();
    }
  },
  limits,
  "two adapters": twoAdapters,
  async race() {
    const all = await Promise.all([start("holds"), start("holds"), start("holds")]);
    print(all.map(({ word }) => word).sort().join(", "));
    all.forEach(({ worker }) => worker.terminate());
  },
};

const WORKERS: Readonly<Record<string, () => Promise<unknown>>> = {
  async works() {
    await work();
    scope.postMessage("works");
  },
  opens: async () => scope.postMessage(await opens()),
  async holds() {
    const word = await openDevice("webgpu").then(() => "holds", ({ message }: Error) => message);
    scope.postMessage(/^Cannot open .* has it open/.test(word) ? "refused" : word);
  },
};

await (Deno.args[0] !== undefined && !(scope.name in WORKERS)
  ? ENDS[Deno.args[0]]!()
  : WORKERS[scope.name]!());
