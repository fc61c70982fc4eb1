/**
 * What each stage of a compiled run costs, by a profile.
 *
 * @module
 */

import type { StageOptions, StageProgram } from "../../kernels/mod.ts";
import { segmentsOf } from "../../kernels/stage/activations.ts";
import { parts, type Schedule, type StageModel } from "../../schedules/mod.ts";
import { optionsOf } from "../pipeline/stage_copies.ts";
import type { CompiledRun } from "../run/compile_run.ts";
import type { FoundCost } from "./profile/find_costs.ts";
import { slicedFacts } from "./profile/layer_facts.ts";
import { linearMs, type LoadCost } from "./profile/profile.ts";

/** A stage, as far as costs depend on it. */
type CostedStage = ReturnType<typeof costedStages>[number];

/** Returns the stages of a run. */
export const costedStages = (compiled: CompiledRun, schedule: Schedule) =>
  compiled.programs.map((program, index) => ({
    program,
    /** Runs of its kernels for each micro-batch: 2 of halves. */
    runs: compiled.halves,
    /** The options by which it is opened. */
    options: optionsOf(compiled, index),
    /** Facts of its layers, once for each slice of a sequence. */
    slices: slicedFacts(program, compiled.stage),
    // Asked for only where something is computed again; an R does so whatever the forward has left.
    ...compiled.stage.recomputeInterval === undefined || compiled.recomputed.has(index)
      ? { freshShare: 0, freshWeightShare: 0 }
      : freshShares(schedule, index),
  }));

/**
 * Of the backwards of a stage those before which nothing else of it ran but the forward of the same
 * micro-batch, and of its W those right after the I. Where messages decide, so it is on the last stage
 * alone, whose loss is a backward's beginning.
 */
function freshShares({ lists, stages, pipelineOf }: Schedule, stage: number) {
  if (!lists) return { freshShare: stage === stages - 1 ? 1 : 0, freshWeightShare: 0 };
  const fresh = { B: 0, W: 0 }, all = { B: 0, W: 0 };
  for (const list of lists) {
    const last = new Map<number, string>();
    for (const part of [...list].flatMap(parts).filter((one) => one.stage === stage)) {
      const { kind, microBatch, slice = 0 } = part, pipe = pipelineOf[microBatch]!;
      const what = `${microBatch} ${slice}`, before = kind === "W" ? `I${what}` : `F${what}`;
      if (kind !== "F" && kind !== "R") {
        const key = kind === "W" ? "W" : "B";
        all[key]++;
        if (last.get(pipe) === before) fresh[key]++;
      }
      last.set(pipe, `${kind}${what}`);
    }
  }
  const share = (key: "B" | "W") => all[key] === 0 ? 0 : fresh[key] / all[key];
  return { freshShare: share("B"), freshWeightShare: share("W") };
}

/**
 * What a stage costs.
 *
 * @param slices what its layers cost, for each slice; or one cost for all of them.
 * @param once what is done once a step.
 */
export function stageModel(
  { program, slices: facts, options, runs, freshShare, freshWeightShare }: CostedStage,
  slices: readonly (readonly FoundCost[])[],
  once: LoadCost,
): StageModel {
  const sum = (name: keyof FoundCost) =>
    runs * slices.flat().reduce((ms, layer) => ms + layer[name], 0);
  const parameters = facts[0]!.reduce((count, one) => count + one.parameters, 0);
  const { recomputeInterval } = options;
  const againMs = (share: number) =>
    runs * slices.reduce((ms, layers) => ms + recomputeMs(program, layers, options, share), 0);
  // I ends with the first segment, and W begins with the last one: where those are one, it is there.
  const isOne = segmentsOf(program.layers, recomputeInterval).length === 1;
  const backwardMs = sum("backwardMs"), elementBytes = options.precision === "fp16" ? 2 : 4;
  return {
    forwardMs: sum("forwardMs"),
    backwardMs,
    inputMs: sum("inputMs"),
    // With an interval, W is B again.
    weightMs: recomputeInterval
      ? backwardMs + againMs(isOne ? freshWeightShare : 0)
      : sum("weightMs"),
    recomputeMs: againMs(freshShare),
    outputBytes: runs * facts.reduce((bytes, one) => bytes + one.at(-1)!.outputBytes, 0),
    gradientBytes: parameters * elementBytes,
    checkMs: linearMs(once.vote, parameters),
    optimizerMs: optimizerMs(once, parameters),
  };
}

/** The optimizer with norms before it and zeros after it: of the same weights, on the same worker. */
export const optimizerMs = ({ optimizer, norm, end }: LoadCost, parameters: number): number =>
  linearMs(optimizer, parameters) + linearMs(norm, parameters) + linearMs(end, parameters);

/** What a backward computes again with an interval; nothing of the last segment where that is fresh. */
function recomputeMs(
  { programs, layers: named }: StageProgram,
  layers: readonly FoundCost[],
  { recomputeInterval }: StageOptions,
  freshShare: number,
): number {
  // What a trace says of a stage has in it what was computed again.
  if (recomputeInterval === undefined || layers.length < named.length) return 0;
  const segments = segmentsOf(named, recomputeInterval);
  return segments.reduce((total, { from, to }, i) => {
    const isKept = programs[named[to - 1]!.program]!.saved.length === 0;
    const ms = layers.slice(from, isKept ? to - 1 : to)
      .reduce((sum, one) => sum + one.recomputeMs, 0);
    return total + (i === segments.length - 1 ? (1 - freshShare) * ms : ms);
  }, 0);
}
