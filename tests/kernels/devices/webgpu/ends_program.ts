/**
 * A program that ends, as its argument says, while the GPU still works for it; or whose isolates want
 * the GPU one after the other. It prints what the test must see.
 */

import { type Device, openDevice } from "../../../../kernels/mod.ts";
import { encodeModel } from "../../../../kernels/onnx/encode_model.ts";
import { Graph } from "../../../../kernels/graph/graph.ts";
import { print } from "../../../../console/print.ts";

const SIZE = 256;
const scope = self as unknown as Worker & { name: string };

/** Opens the GPU and gives it work for a second or more. */
async function work(): Promise<Device> {
  const device = await openDevice("webgpu");
  const g = new Graph(), x = g.input("x", [SIZE, SIZE]);
  let y = x;
  for (let i = 0; i < 8; i++) y = g.matmul(y, x);
  const kernel = await device.compile(
    encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: y }]),
  );
  const [from, to] = [device.alloc("f32", [SIZE, SIZE]), device.alloc("f32", [SIZE, SIZE])];
  const run = kernel.bind({ x: from }, { y: to });
  for (let i = 0; i < 4; i++) await run();
  return device;
}

/** Starts this module as a worker; waits for its word. */
async function start(name: string): Promise<{ worker: Worker; word: string }> {
  const worker = new Worker(import.meta.url, { type: "module", name });
  worker.onerror = (event) => event.preventDefault();
  const word = await new Promise<string>((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
  });
  return { worker, word };
}

const opens = async () => {
  try {
    (await openDevice("webgpu")).close();
    return "opened";
  } catch (error) {
    return (error as Error).message;
  }
};

const ENDS: Readonly<Record<string, () => Promise<unknown>>> = {
  async natural() {
    await work();
  },
  async exit() {
    await work();
    Deno.exit(3);
  },
  async throw() {
    await work();
    setTimeout(() => {
      throw new Error("thrown");
    });
  },
  async reject() {
    await work();
    Promise.reject(new Error("rejected"));
  },
  async "worker terminated"() {
    (await start("works")).worker.terminate();
  },
  async "worker throws"() {
    await start("works, then throws");
    await new Promise((resolve) => setTimeout(resolve, 100));
    Deno.exit(4);
  },
  async "another isolate's exit"() {
    await start("works");
    Deno.exit(5);
  },
  /** The next isolate waits for the last call of one that was terminated. */
  async "owner terminated"() {
    const { worker } = await start("works");
    print(await opens());
    worker.terminate();
    print(await opens());
    const second = await start("opens");
    print(second.word);
    second.worker.terminate();
  },
  async "owner is main"() {
    const device = await openDevice("webgpu");
    const { worker, word } = await start("opens");
    print(word);
    worker.terminate();
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", import.meta.url, "a child"],
    });
    print(new TextDecoder().decode((await child.output()).stdout).trim());
    device.close();
    const next = await start("opens");
    print(next.word);
    next.worker.terminate();
  },
  async "a child"() {
    print(await opens());
  },
  /** Reads until the GPU is lost; and once more when it was closed and opened. */
  async lost() {
    for (let opened = 0; opened < 2; opened++) {
      const device = await openDevice("webgpu"), tensor = device.alloc("f32", [4]);
      try {
        for (let reads = 0; reads < 100; reads++) await device.read(tensor);
        print("never lost");
      } catch (error) {
        print((error as Error).message);
      }
      device.close();
    }
  },
  async race() {
    for (let i = 0; i < 2; i++) {
      const all = await Promise.all([start("holds"), start("holds"), start("holds")]);
      print(all.map(({ word }) => word).sort().join(", "));
      all.forEach(({ worker }) => worker.terminate());
    }
  },
};

const WORKERS: Readonly<Record<string, () => Promise<unknown>>> = {
  async works() {
    await work();
    scope.postMessage("works");
  },
  async "works, then throws"() {
    await work();
    scope.postMessage("works");
    setTimeout(() => {
      throw new Error("thrown");
    });
  },
  async opens() {
    scope.postMessage(await opens());
  },
  async holds() {
    await openDevice("webgpu").then(
      () => scope.postMessage("holds"),
      (error) =>
        scope.postMessage(
          /^Cannot open .* has it open/.test(error.message) ? "refused" : error.message,
        ),
    );
  },
};

await (Deno.args[0] !== undefined && !(scope.name in WORKERS)
  ? ENDS[Deno.args[0]]!()
  : WORKERS[scope.name]!());
