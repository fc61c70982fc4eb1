/**
 * Memory stays flat: a tiny model trains for thousands of steps in one isolate, in workers, in
 * processes and on a GPU where there is an adapter, with and without retries and a journal. At the end
 * the whole process tree may hold no more than 1.1 times what it held at step 500, and 20 MiB.
 *
 *     deno task campaign memory [--cases STEPS]
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { train, type TrainOptions } from "../../actors/mod.ts";
import { HEAP_FLAGS } from "../../actors/runtime/transports/process/command.ts";
import { print } from "../../console/print.ts";
import { residentBytes } from "../../console/train/resident_memory.ts";
import { type Layer, webgpuAdapters } from "../../kernels/mod.ts";
import { runCampaign } from "./cases_helper.ts";

const STEPS = 20_000, FIRST = 500;

/** Steps over which the median of what is held is taken: collectors of garbage come and go. */
const WINDOW = 200, EVERY = 20;

const MIB = 2 ** 20, FACTOR = 1.1, SLACK_MIB = 20;

const PLACES: readonly Partial<TrainOptions>[] = [
  { runtime: "local" },
  { runtime: "workers" },
  { runtime: "workers", isolation: "process" },
  // What software that takes the place of a GPU holds is memory of its process.
  { runtime: "workers", device: "webgpu" },
];

/** A run, as JSON on the command line of its process. */
interface MemoryRun {
  readonly steps: number;
  /** The steps after which memory is looked at. */
  readonly samples: readonly number[];
  readonly options: Partial<TrainOptions>;
}

/** Steps of a window, the last of which is `end`. */
const windowTo = (end: number) => Array.from({ length: WINDOW / EVERY }, (_, n) => end - n * EVERY);

const median = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[values.length >> 1]! / MIB;

/** Mebibytes held at step {@linkcode FIRST} and at the end. */
async function measure(steps: number, options: MemoryRun["options"]): Promise<[number, number]> {
  const first = windowTo(FIRST), run = { steps, samples: [...first, ...windowTo(steps)], options };
  // As `deno task train` does.
  const heap = `--v8-flags=${HEAP_FLAGS.join()}`, file = fileURLToPath(import.meta.url);
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", heap, file, JSON.stringify(run)],
    ...{ stdin: "null", stderr: "inherit" },
  }).output();
  if (!success) throw new Error("Cannot measure: the run failed");
  const bytes = JSON.parse(new TextDecoder().decode(stdout)) as number[];
  return [median(bytes.slice(0, first.length)), median(bytes.slice(first.length))];
}

const ROWS = 4;

const dense = (name: string, inputs: number, outputs: number): Layer => ({
  name,
  build(g, x) {
    const points = x ?? g.batch("points", [ROWS, inputs]);
    return g.gelu(g.gemm(points, g.parameter("weight", [inputs, outputs])));
  },
});

const classifier: Layer = {
  name: "classifier",
  build: (g, x) =>
    g.crossEntropy(g.gemm(x!, g.parameter("weight", [8, 2])), g.batch("labels", [ROWS], "i32")),
};

function* batches() {
  for (let n = 0;; n++) {
    const points = Float32Array.from({ length: 2 * ROWS }, (_, i) => Math.sin(n + i));
    yield { points, labels: Int32Array.from({ length: ROWS }, (_, i) => Number(points[i]! > 0)) };
  }
}

/** Trains, and prints how much memory this process and its children held on the way. */
async function run({ steps, samples, options }: MemoryRun): Promise<void> {
  const layers = [dense("a", 2, 8), dense("b", 8, 8), classifier], bytes: number[] = [];
  const events = train({
    ...{ model: { name: "tiny", layers, predictions: ROWS }, data: batches(), steps },
    ...{ microBatches: 2, workers: 2, schedule: "1f1b", ...options },
  });
  for await (const event of events) {
    if (event.type === "step" && samples.includes(event.step)) bytes.push(residentBytes(Deno.pid));
  }
  print(JSON.stringify(bytes));
}

if (Deno.args[0]?.startsWith("{")) await run(JSON.parse(Deno.args[0]) as MemoryRun);
else {
  const { adapters } = await webgpuAdapters(), folder = await Deno.makeTempDir();
  await runCampaign("memory", STEPS, function* (steps) {
    for (const where of PLACES) {
      if ("device" in where && adapters.length === 0) continue;
      for (const retries of [3, 0]) {
        for (const journal of [undefined, { path: `${folder}/journal.jsonl` }]) {
          const options = { ...where, retries, journal }, name = JSON.stringify(options);
          yield {
            name,
            async run() {
              const [first, last] = await measure(Math.max(steps, FIRST + WINDOW), options);
              const said = `${first.toFixed(0)} MiB at step ${FIRST}, ${
                last.toFixed(0)
              } at the end`;
              print(`${name}: ${said}`);
              return last <= FACTOR * first + SLACK_MIB ? undefined : said;
            },
          };
        }
      }
    }
  });
}
