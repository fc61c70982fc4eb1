/**
 * What Troupe claims of its speed, measured here and now.
 *
 *     deno task bench [section …] [--rounds 3] [--emulate-load none,lengths:4] [--json | --markdown]
 *     deno task bench plans [--runs 60] [--seed 1]
 *
 * Sections are the keys of `SECTIONS`; all of them unless some are named.
 * `papers` alone prints the page `docs/papers.md`: figures of three papers beside predictions.
 * `--emulate-load` names the scenarios of `readiness`, as `--scenario` of `troupe schedule jitter`,
 * and `modules`, the work of `examples/multimodal.ts`.
 * `--rounds` lets nothing be measured more often, for a first look: then the figures say little.
 * Every figure that is compared with another is taken in the same run, interleaved with it. The
 * exit code does not depend on the figures: a machine that is busy fails targets for no fault of the
 * code, so a person judges them.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { print, printError } from "../console/terminal.ts";
import { gpuBench } from "./gpu.ts";
import { kernelsBench, weightGradientsBench } from "./kernels.ts";
import { lengthsBench } from "./lengths.ts";
import { memoryBench } from "./memory.ts";
import { messagesBench } from "./messages.ts";
import { mpiBench, mpiRanksBench } from "./mpi.ts";
import { nanoGptBench, precisionsBench } from "./nanogpt.ts";
import { overlapBench } from "./overlap.ts";
import { gpt2Bench, peersBench } from "./peers.ts";
import { papersPage } from "./papers/mod.ts";
import { pipelineBench } from "./pipeline.ts";
import { plansBench } from "./plans.ts";
import { readinessBench } from "./readiness.ts";
import { isMet, machineText, markdown, reasonRow, type Row, table, thisMachine } from "./report.ts";
import { scalingBench } from "./scaling.ts";
import { simulationBench } from "./simulation.ts";
import { steadyBench } from "./steady.ts";
import { threadsBench } from "./threads.ts";
import { limitRounds } from "./timing.ts";
import { tracingBench } from "./tracing.ts";

/** Flags of single sections. */
interface SectionFlags {
  readonly load: string | undefined;
  readonly runs: number | undefined;
  readonly seed: number | undefined;
}

const SECTIONS: Readonly<Record<string, (flags: SectionFlags) => Promise<Row[]>>> = {
  kernels: kernelsBench,
  "weight-gradients": weightGradientsBench,
  gpu: gpuBench,
  pipeline: pipelineBench,
  overlap: overlapBench,
  messages: messagesBench,
  mpi: mpiBench,
  "mpi-ranks": mpiRanksBench,
  peers: peersBench,
  threads: threadsBench,
  gpt2: gpt2Bench,
  nanogpt: nanoGptBench,
  precisions: precisionsBench,
  memory: memoryBench,
  scaling: scalingBench,
  lengths: lengthsBench,
  steady: steadyBench,
  tracing: tracingBench,
  simulation: simulationBench,
  readiness: ({ load }) => readinessBench(load),
  plans: ({ runs, seed }) => plansBench(runs, seed),
};

const MODEL =
  "Where nothing else is said: GPT-2 with 4 layers, hidden 256, 4 heads, 128 tokens, vocabulary 1024; " +
  "4 samples a micro-batch; one thread a device";

/** Runs the sections that the arguments name, or all. */
async function main(args: string[]): Promise<number> {
  if (args.includes("papers")) {
    if (args.length === 1) print(papersPage());
    else printError(`Cannot measure: papers must be alone, received ${args.join(" ")}`);
    return args.length === 1 ? 0 : 2;
  }
  const parsed = parseArgs(args, { boolean: ["json", "markdown"], string: ["emulate-load"] });
  const { json, markdown: isMarkdown, _: named, ...valued } = parsed;
  const { rounds, runs, seed, "emulate-load": load, ...unknown } = valued;
  const wrong = [...named.filter((name) => !(name in SECTIONS)), ...Object.keys(unknown)];
  if (wrong.length > 0) {
    const known = [...Object.keys(SECTIONS), "papers"].join(", ");
    printError(`Cannot measure: a section must be one of ${known}, received ${wrong[0]}`);
    return 2;
  }
  for (const [name, count] of Object.entries({ rounds, runs, seed })) {
    if (count === undefined || Number.isInteger(count) && count >= 1) continue;
    printError(`Cannot measure: --${name} must be a whole number from 1, received ${count}`);
    return 2;
  }
  if (rounds !== undefined) limitRounds(rounds);
  const before = await thisMachine();
  if (!json) print(`${machineText(before)}\n${MODEL}\n`);
  const all: object[] = [];
  for (const section of named.length > 0 ? named.map(String) : Object.keys(SECTIONS)) {
    printError(`measuring ${section} …`);
    const rows = await SECTIONS[section]!({ load, runs, seed })
      .catch((error) => [reasonRow(section, error)]);
    all.push(...rows.map((row) => ({ section, ...row, isMet: isMet(row) })));
    if (!json) print(`${(isMarkdown ? markdown : table)(section, rows)}\n`);
  }
  if (json) print(JSON.stringify({ machine: before, model: MODEL, rows: all }, undefined, 2));
  return 0;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
