/**
 * What each stage of a compiled run costs, by a profile.
 *
 * @module
 */

import type { StageOptions, StageProgram } from "../../kernels/mod.ts";
import { segmentsOf } from "../../kernels/stage/recompute_interval.ts";
import { parts, type Schedule, type StageModel } from "../../schedules/mod.ts";
import { optionsOf } from "../pipeline/stage_copies.ts";
import type { CompiledRun } from "../run/compile_run.ts";
import type { FoundCost } from "./profile/find_costs.ts";
import { type LayerFacts, slicedFacts } from "./profile/layer_facts.ts";
import { linearMs, type LoadCost } from "./profile/profile.ts";

/** A stage, as far as costs depend on it. */
export interface CostedStage {
  readonly program: StageProgram;
  /** Of its layers, for each slice of a sequence; of a whole sequence once. */
  readonly slices: readonly (readonly LayerFacts[])[];
  /** How it is opened. */
  readonly options: StageOptions;
  /** Runs of its kernels for each micro-batch: 2 of halves. */
  readonly runs: 1 | 2;
  /** Share of its backwards that come right after the forward, and find what that has left. */
  readonly freshShare: number;
}

/** The stages of a run. */
export function costedStages(compiled: CompiledRun, schedule: Schedule): CostedStage[] {
  return compiled.programs.map((program, index) => ({
    program,
    runs: compiled.halves,
    options: optionsOf(compiled, index),
    slices: slicedFacts(program, compiled.stage),
    // Asked for only where something is computed again; an R does so whatever the forward has left.
    freshShare: compiled.stage.recomputeInterval === undefined || compiled.recomputed.has(index)
      ? 0
      : freshShare(schedule, index),
  }));
}

/**
 * Of the backwards of a stage those before which nothing else of it ran but the forward of the same
 * micro-batch. Where messages decide, so it is on the last stage alone, whose loss is a backward's
 * beginning.
 */
function freshShare({ lists, stages, replicaOf }: Schedule, stage: number): number {
  if (!lists) return stage === stages - 1 ? 1 : 0;
  let fresh = 0, all = 0;
  for (const list of lists) {
    const last = new Map<number, string>();
    for (const part of [...list].flatMap(parts).filter((one) => one.stage === stage)) {
      const { kind, microBatch, slice = 0 } = part, pipe = replicaOf[microBatch]!;
      const what = `${microBatch} ${slice}`;
      if (kind === "B" || kind === "I") {
        all++;
        if (last.get(pipe) === `F${what}`) fresh++;
      }
      last.set(pipe, `${kind}${what}`);
    }
  }
  return all === 0 ? 0 : fresh / all;
}

/**
 * What a stage costs.
 *
 * @param slices what its layers cost, for each slice; or one cost for all of them.
 * @param once what is done once a step.
 */
export function stageModel(
  { program, slices: facts, options, runs, freshShare }: CostedStage,
  slices: readonly (readonly FoundCost[])[],
  { optimizer, vote, norm, end }: LoadCost,
): StageModel {
  const sum = (name: keyof FoundCost) =>
    runs * slices.flat().reduce((ms, layer) => ms + layer[name], 0);
  const parameters = facts[0]!.reduce((count, one) => count + one.parameters, 0);
  const again = runs * slices.reduce(
    (ms, layers) => ms + recomputeMs(program, layers, options, freshShare),
    0,
  );
  const backwardMs = sum("backwardMs"), elementBytes = options.precision === "fp16" ? 2 : 4;
  return {
    forwardMs: sum("forwardMs"),
    backwardMs,
    inputMs: sum("inputMs"),
    // With an interval, W is B again.
    weightMs: options.recomputeInterval ? backwardMs + again : sum("weightMs"),
    recomputeMs: again,
    outputBytes: runs * facts.reduce((bytes, one) => bytes + one.at(-1)!.outputBytes, 0),
    gradientBytes: parameters * elementBytes,
    checkMs: linearMs(vote, parameters),
    // Norms before it and zeros after it are of the same weights, on the same worker.
    optimizerMs: [optimizer, norm, end].reduce((ms, cost) => ms + linearMs(cost, parameters), 0),
  };
}

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
    const ms = layers.slice(from, isKept ? to - 1 : to).reduce(
      (sum, one) => sum + one.recomputeMs,
      0,
    );
    return total + (i === segments.length - 1 ? (1 - freshShare) * ms : ms);
  }, 0);
}
