/** A program whose workers share the arena of ONNX Runtime: prints what each saw of it, in turn. */

import type { ArenaRequest } from "./arena_worker.ts";

/** Many, so that several open the device at once, before there is an arena. */
const WORKERS = 8;
const library = Deno.args[0]!;

const start = () => new Worker(new URL("./arena_worker.ts", import.meta.url), { type: "module" });
const ask = (worker: Worker, request: ArenaRequest) =>
  new Promise<number>((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.postMessage(request);
  });
const askAll = (workers: readonly Worker[], request: ArenaRequest) =>
  Promise.all(workers.map((worker) => ask(worker, request)));

const first = Array.from({ length: WORKERS }, start);
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
Deno.stdout.writeSync(
  new TextEncoder().encode(JSON.stringify({ computed, joined, left })),
);
