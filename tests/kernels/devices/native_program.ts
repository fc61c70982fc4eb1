/**
 * Programs whose workers compute on the native device: by their first argument. `terminate` terminates
 * workers in the middle of a run; `share` prints what each of several saw of their arena, in turn.
 */

import { mutex, openNative } from "../../../kernels/devices/cpu/native.ts";
import { openOrt } from "../../../kernels/devices/cpu/ort_api.ts";
import { Graph } from "../../../kernels/ops/graph.ts";
import { modelOf } from "./models.ts";

/** Computes with matrices of a size, once or for ever; looks at the arena; or closes the device. */
type Request =
  | { readonly kind: "compute" | "compute on"; readonly library: string; readonly size: number }
  | { readonly kind: "look"; readonly library: string }
  | { readonly kind: "end" };

const scope = self as unknown as Worker;
let device: Awaited<ReturnType<typeof openNative>> | undefined;

async function answer(request: Request): Promise<number> {
  if (request.kind === "end") {
    device?.close();
    return 0;
  }
  const { library } = request;
  if (request.kind === "look") {
    const ort = await mutex(() => openOrt(library, { threads: 1, isBlocking: true }));
    return ort.arenaBytes();
  }
  const shape = [request.size, request.size], g = new Graph(), a = g.input("a", shape);
  device = await openNative({ library });
  const kernel = await device.compile(modelOf(g, { y: g.gemm(g.gemm(a, a), a) }));
  const run = kernel.bind({ a: device.alloc("f32", shape) }, { y: device.alloc("f32", shape) });
  if (request.kind === "compute on") {
    const computing = run();
    scope.postMessage(0);
    for (await computing;;) await run();
  }
  await run();
  return 0;
}

const start = () => new Worker(import.meta.url, { type: "module" });
const ask = (worker: Worker, request: Request) =>
  new Promise<number>((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.postMessage(request);
  });
const askAll = (workers: readonly Worker[], request: Request) =>
  Promise.all(workers.map((worker) => ask(worker, request)));

const PROGRAMS: Readonly<Record<string, (library: string) => Promise<unknown>>> = {
  async terminate(library) {
    for (let round = 0; round < 3; round++) {
      const worker = start();
      await ask(worker, { kind: "compute on", library, size: 768 });
      await new Promise((resolve) => setTimeout(resolve, 3 * round));
      worker.terminate();
    }
    // A run of a terminated isolate still uses its memory.
    const last = start();
    for (let i = 0; i < 2; i++) await ask(last, { kind: "compute", library, size: 768 });
    last.terminate();
  },
  async share(library) {
    // Many, so that several open the device concurrently, before there is an arena.
    const first = Array.from({ length: 4 }, start);
    await askAll(first, { kind: "end" }); // all are there, and open the device at the same moment
    await askAll(first, { kind: "compute", library, size: 256 });
    const computed = await askAll(first, { kind: "look", library });
    const [one, ...others] = first as [Worker, ...Worker[]];
    await askAll(others, { kind: "end" });
    others.forEach((worker) => worker.terminate());
    const second = [one, start()];
    await ask(second[1]!, { kind: "compute", library, size: 512 });
    const joined = await askAll(second, { kind: "look", library });
    await askAll(second, { kind: "end" });
    const left = await askAll(second, { kind: "look", library });
    second.forEach((worker) => worker.terminate());
    const text = JSON.stringify({ computed, joined, left });
    Deno.stdout.writeSync(new TextEncoder().encode(text));
  },
};

if ("DedicatedWorkerGlobalScope" in globalThis) {
  scope.onmessage = async ({ data }: MessageEvent<Request>) =>
    scope.postMessage(await answer(data));
} else {
  await PROGRAMS[Deno.args[0]!]!(Deno.args[1]!);
}
