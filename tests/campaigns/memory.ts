/**
 * Memory stays flat, without any flag of V8: a script trains a tiny model for thousands of steps in one
 * isolate, in workers, in processes and on a GPU where there is an adapter, with and without retries
 * and a journal; and so does the command. At the end the whole process tree may hold no more than 1.1
 * times what it held at step 500, and 20 MiB.
 *
 *     deno task campaign memory [--cases STEPS]
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { train } from "../../actors/run/train.ts";
import type { TrainOptions } from "../../actors/options/train_options.ts";
import { linesOf, print } from "../../console/terminal.ts";
import { residentBytes } from "../../console/train/memory_report.ts";
import { webgpuAdapters } from "../../kernels/devices/webgpu/adapters.ts";
import { batches, RINGS } from "../actors/run/own_layers.ts";
import { runCampaign } from "./cases_helper.ts";

const STEPS = 20_000, FIRST = 500;

/** Steps of the median of the memory, which varies with garbage collection. */
const WINDOW = 200, EVERY = 20;

const MIB = 2 ** 20, FACTOR = 1.1, SLACK_MIB = 20;

const PLACES: readonly Partial<TrainOptions>[] = [
  { runtime: "local" },
  { runtime: "workers" },
  { runtime: "workers", isolation: "process" },
  // A software adapter holds its memory in the process.
  { runtime: "workers", device: "webgpu" },
];

const CLI = fileURLToPath(new URL("../../cli.ts", import.meta.url));

/** A tiny model as a user trains it from the command line. */
const COMMAND = [
  ...["train", "--json", "--model", "mlp", "--layers", "3", "--hidden", "8", "--workers", "2"],
  ...["--micro-batches", "2", "--schedule", "1f1b"],
];

/** Steps of a window, the last of which is `end`. */
const windowTo = (end: number) => Array.from({ length: WINDOW / EVERY }, (_, n) => end - n * EVERY);

const median = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[values.length >> 1]! / MIB;

/** Mebibytes that a program holds at step {@linkcode FIRST} and at the end; it prints steps as JSON. */
async function measure(steps: number, program: readonly string[]): Promise<[number, number]> {
  const args = ["run", "-A", ...program], samples = [windowTo(FIRST), windowTo(steps)];
  const held: [number[], number[]] = [[], []];
  const child = new Deno.Command(Deno.execPath(), { args, stdin: "null", stdout: "piped" }).spawn();
  for await (const line of linesOf(child.stdout)) {
    const { step, loss } = JSON.parse(line);
    const n = loss === undefined ? -1 : samples.findIndex((window) => window.includes(step));
    if (n >= 0) held[n]!.push(residentBytes(child.pid));
  }
  if (!(await child.status).success) throw new Error("Cannot measure: the run failed");
  return [median(held[0]), median(held[1])];
}

/** Trains as a script does, and prints the steps. */
async function run(options: Pick<TrainOptions, "steps">): Promise<void> {
  const model = { model: RINGS, data: batches(), microBatches: 2 };
  const events = train({ ...model, workers: 2, schedule: "1f1b", ...options });
  for await (const event of events) {
    if (event.type === "step") print(JSON.stringify({ step: event.step, loss: event.loss }));
  }
}

/** Programs by what they do. */
async function* programs(steps: number, folder: string): AsyncGenerator<[string, string[]]> {
  const { adapters } = await webgpuAdapters(), file = fileURLToPath(import.meta.url);
  for (const where of PLACES) {
    if ("device" in where && adapters.length === 0) continue;
    for (const retries of [3, 0]) {
      for (const journal of [undefined, { path: `${folder}/journal.jsonl` }]) {
        const options = JSON.stringify({ ...where, retries, journal, steps });
        yield [options, [file, options]];
      }
    }
  }
  for (const runtime of ["local", "workers"]) {
    const flags = [...COMMAND, "--runtime", runtime, "--steps", `${steps}`];
    yield [`troupe ${flags.join(" ")}`, [CLI, ...flags]];
  }
}

if (Deno.args[0]?.startsWith("{")) await run(JSON.parse(Deno.args[0]) as TrainOptions);
else {
  const folder = await Deno.makeTempDir();
  await runCampaign("memory", STEPS, async function* (cases) {
    const steps = Math.max(cases, FIRST + WINDOW);
    for await (const [name, program] of programs(steps, folder)) {
      yield {
        name,
        async run() {
          const [first, last] = await measure(steps, program);
          const said = `${first.toFixed(0)} MiB at step ${FIRST}, ${last.toFixed(0)} at the end`;
          print(`${name}: ${said}`);
          return last <= FACTOR * first + SLACK_MIB ? undefined : said;
        },
      };
    }
  });
}
