/**
 * Memory stays flat: a tiny model trains for 20,000 steps in one isolate, in workers, in processes
 * and on a GPU where there is an adapter, with and without retries and a journal. At the end the whole process tree may hold no
 * more than 1.1 times what it held at step 500, and 20 MiB.
 *
 *     deno task campaign memory [--cases STEPS]
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { HEAP_FLAGS } from "../../actors/runtime/transports/process/command.ts";
import { webgpuAdapters } from "../../kernels/mod.ts";
import { print, printError } from "../../console/print.ts";
import type { MemoryRun } from "./memory_entry.ts";

const STEPS = 20_000;
const FIRST = 500;
/** Steps over which the median of what is held is taken: collectors of garbage come and go. */
const WINDOW = 200;
const EVERY = 20;

const MIB = 2 ** 20;
const FACTOR = 1.1;
const SLACK_MIB = 20;

const PLACES = {
  local: { runtime: "local" },
  workers: { runtime: "workers" },
  process: { runtime: "workers", isolation: "process" },
  // What software that takes the place of a GPU holds is memory of its process.
  webgpu: { runtime: "workers", device: "webgpu" },
} as const;

/** Steps of a window, the last of which is `end`. */
function windowTo(end: number): number[] {
  return Array.from({ length: WINDOW / EVERY }, (_, n) => end - n * EVERY);
}

/** Mebibytes held at step {@linkcode FIRST} and at the end. */
async function measure(steps: number, options: MemoryRun["options"]): Promise<[number, number]> {
  const first = windowTo(FIRST), run = { steps, samples: [...first, ...windowTo(steps)], options };
  const file = new URL("memory_entry.ts", import.meta.url).href;
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    // As `deno task train` does.
    args: [
      "run",
      "-A",
      `--v8-flags=${HEAP_FLAGS.join()}`,
      file,
      JSON.stringify(run),
    ],
    stdin: "null",
    stderr: "inherit",
  }).output();
  if (!success) throw new Error("Cannot measure: the run failed");
  const bytes = JSON.parse(new TextDecoder().decode(stdout)) as number[];
  return [median(bytes.slice(0, first.length)) / MIB, median(bytes.slice(first.length)) / MIB];
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}

if (import.meta.main) {
  const steps = Number(parseArgs(Deno.args, { string: ["cases"] }).cases ?? STEPS);
  if (!Number.isSafeInteger(steps) || steps < FIRST + WINDOW) {
    printError(`Cannot begin: --cases must be ${FIRST + WINDOW} steps or more`);
    Deno.exit(2);
  }
  const folder = await Deno.makeTempDir();
  let cases = 0, survived = 0;
  print(`MiB of all processes at step ${FIRST} and at step ${steps}`);
  const { adapters } = await webgpuAdapters();
  for (const [place, where] of Object.entries(PLACES)) {
    if ("device" in where && adapters.length === 0) {
      print(`${place}: left out, as this machine has no adapter`);
      continue;
    }
    for (const retries of [3, 0]) {
      for (const path of [undefined, `${folder}/journal.jsonl`]) {
        const journal = path === undefined ? undefined : { path };
        const [first, last] = await measure(steps, { ...where, retries, journal });
        const isFlat = last <= FACTOR * first + SLACK_MIB;
        cases++;
        if (isFlat) survived++;
        const name = `${place}, ${retries} retries${journal ? ", journal" : ""}`;
        print(
          `${name.padEnd(30)} ${first.toFixed(0).padStart(6)} ${last.toFixed(0).padStart(6)}  ` +
            (isFlat ? "flat" : "GROWN"),
        );
      }
    }
  }
  await Deno.remove(folder, { recursive: true });
  print(`memory: ${cases} cases, ${survived} survived`);
  Deno.exit(survived === cases ? 0 : 1);
}
