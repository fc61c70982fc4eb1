/**
 * Brings what probes measure to what workers of a run take.
 *
 * [Note: workers sleep] A probe computes all the time. A worker of a pipeline sleeps until a message
 * comes, and wakes on whichever core the system has for it, maybe beside its sender: then its actions
 * take longer than a probe's. How much longer is measured on runs of their own, one for each load;
 * the steps that a profile is checked by are none of theirs.
 *
 * @module
 */

import { ADAMW_DEFAULTS, cutIntoStages, type ModelProgram } from "../../../kernels/mod.ts";
import type { StepOutcome } from "../../pipeline/step.ts";
import { computes, readSpan, type Span } from "../../run/timeline/span.ts";
import { busyIntegral } from "../concurrency.ts";
import { mapNumbers, openLayerCosts } from "../profile/find_costs.ts";
import { type LayerFacts, slicedFacts } from "../profile/layer_facts.ts";
import { type LayerCost, type LinearCost, linearMs, type LoadCost } from "../profile/profile.ts";

/** What workers of a run took, of one model and load. */
export interface CalibratedLoad {
  /** Index of the model among those that are measured. */
  readonly model: number;
  /** Workers of the run, each with a stage. */
  readonly atOnce: number;
  /** Of each step what the workers did. */
  readonly steps: StepOutcome["traces"][];
}

/** Calibrates the costs of the layers of each model, and of loads, from the lowest load on. */
export function calibrate(
  { layers, loads, programs }: {
    readonly layers: readonly (readonly LayerCost[])[];
    readonly loads: readonly LoadCost[];
    readonly programs: readonly ModelProgram[];
  },
  runs: readonly CalibratedLoad[],
): { readonly layers: readonly LayerCost[]; readonly loads: readonly LoadCost[] } {
  const endings = new Map<number, number[]>();
  const calibrated = layers.map((costs, model) => {
    const own = runs.filter((run) => run.model === model && run.steps.length > 0)
      .toSorted((a, b) => a.atOnce - b.atOnce);
    let known: readonly LayerCost[] = costs;
    for (const { atOnce, steps } of own) {
      const stages = cutIntoStages(programs[model]!, atOnce).map((stage) =>
        slicedFacts(stage, { optimizer: ADAMW_DEFAULTS })[0]!
      );
      const factor = actionFactor(known, stages, atOnce, steps);
      known = known.map((cost) => cost.atOnce === atOnce ? scaled(cost, factor) : cost);
      const once = loads.find((one) => one.atOnce === atOnce);
      if (!once) continue;
      endings.set(atOnce, [...endings.get(atOnce) ?? [], endFactor(once, stages, steps)]);
    }
    return known;
  });
  return {
    layers: calibrated.flat(),
    loads: loads.map((one) => {
      const factors = endings.get(one.atOnce) ?? [1];
      return scaledOnce(one, factors.reduce((sum, factor) => sum + factor, 0) / factors.length);
    }),
  };
}

/**
 * How much longer actions took than costs say. Fewer workers than the run has computed at once on
 * average: what that says of lower loads has been calibrated before.
 */
function actionFactor(
  costs: readonly LayerCost[],
  stages: readonly (readonly LayerFacts[])[],
  atOnce: number,
  steps: CalibratedLoad["steps"],
): number {
  const upTo = costs.filter((cost) => cost.atOnce <= atOnce), [first] = upTo;
  if (!first) return 1;
  const found = openLayerCosts(upTo, first.device);
  const below = Math.max(0, ...upTo.map((one) => one.atOnce).filter((load) => load < atOnce));
  let tookMs = 0, lowMs = 0, highMs = 0;
  for (const traces of steps) {
    const spans = traces.flatMap((trace, worker) => trace.map((one) => readSpan(one, worker)))
      .filter(computes);
    const load = meanLoad(spans), share = (load - below) / (atOnce - below);
    for (const { start, end, kind, stages: [stage] } of spans) {
      const name = kind === "F" ? "forwardMs" : "backwardMs";
      const sum = (at: number) =>
        stages[stage!]!.reduce((ms, facts) => ms + found.layer(facts, at)[name], 0);
      tookMs += end - start;
      if (below > 0) lowMs += (1 - share) * sum(below);
      highMs += (below > 0 ? share : 1) * sum(atOnce);
    }
  }
  return highMs > 0 ? Math.max(FACTOR_MIN, (tookMs - lowMs) / highMs) : 1;
}

/** No worker is so much faster than a probe: what says so is noise. */
const FACTOR_MIN = 0.5;

/** How many compute at once while anybody does, by the time of all. */
function meanLoad(spans: readonly Span[]): number {
  const busyUntil = busyIntegral(
    [Float64Array.from(spans, ({ start }) => start)],
    [Float64Array.from(spans, ({ end }) => end)],
  );
  let ms = 0, busyMs = 0;
  for (const { start, end } of spans) {
    ms += end - start;
    busyMs += busyUntil(end) - busyUntil(start);
  }
  return ms === 0 ? 1 : busyMs / ms;
}

/** How much longer optimizer and norms took than costs say. */
function endFactor(
  { optimizer, norm }: LoadCost,
  stages: readonly (readonly LayerFacts[])[],
  steps: CalibratedLoad["steps"],
): number {
  let tookMs = 0, saidMs = 0;
  for (const traces of steps) {
    for (const [worker, trace] of traces.entries()) {
      const parameters = stages[worker]!.reduce((sum, one) => sum + one.parameters, 0);
      saidMs += linearMs(optimizer, parameters) + linearMs(norm, parameters);
      for (const one of trace) {
        const { kind, start, end } = readSpan(one, worker);
        if (kind === "optimizer" || kind === "reduce") tookMs += end - start;
      }
    }
  }
  return saidMs > 0 ? Math.max(FACTOR_MIN, tookMs / saidMs) : 1;
}

function scaled(cost: LayerCost, factor: number): LayerCost {
  const { forwardMs, backwardMs, inputMs, weightMs } = cost;
  const split = inputMs === undefined || weightMs === undefined ? {} : { inputMs, weightMs };
  return { ...cost, ...mapNumbers({ forwardMs, backwardMs, ...split }, (ms) => factor * ms) };
}

function scaledOnce({ atOnce, optimizer, vote, norm, end }: LoadCost, factor: number): LoadCost {
  const times = (cost: LinearCost) => mapNumbers(cost, (ms) => factor * ms);
  return {
    atOnce,
    optimizer: times(optimizer),
    vote: times(vote),
    norm: times(norm),
    end: times(end),
  };
}
