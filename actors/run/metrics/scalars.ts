/**
 * Metrics as named numbers, as trackers want them.
 *
 * @module
 */

import type { Metrics } from "./metrics.ts";

/** A number that is tracked. */
export interface Scalar {
  /** What it is, with `/` between a group and its parts. */
  readonly name: string;
  readonly value: number;
  /** As UCUM has it; none for what has no unit. */
  readonly unit?: string;
  /** The worker of which it tells. */
  readonly worker?: number;
}

/**
 * The numbers of a record; what was not measured is not among them.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const measured = { type: "step", step: 1, time: 0, seconds: 1, tokens: 32, loss: 5, rss: 1e6 } as const;
 * const named = scalarsOf(measured).map(({ name, value }) => [name, value]);
 * assert.deepEqual(named, [["loss", 5], ["tokens", 32], ["memory/program", 1e6]]);
 * ```
 */
export function scalarsOf(metrics: Metrics): Scalar[] {
  const { loss, gradNorm, learningRate, lossScale, tokensPerSecond, tokens } = metrics;
  const { evalLoss, perplexity, rss, memory = [] } = metrics;
  const scalars: readonly (Omit<Scalar, "value"> & { readonly value: number | undefined })[] = [
    { name: "loss", value: loss },
    { name: "grad_norm", value: gradNorm },
    { name: "learning_rate", value: learningRate },
    { name: "loss_scale", value: lossScale },
    { name: "tokens_per_second", value: tokensPerSecond, unit: "{token}/s" },
    { name: "tokens", value: tokens, unit: "{token}" },
    { name: "eval/loss", value: evalLoss },
    { name: "eval/perplexity", value: perplexity },
    { name: "memory/program", value: rss, unit: "By" },
    ...memory.map((value, worker) => ({ name: "memory/worker", value, unit: "By", worker })),
  ];
  return scalars.filter((one): one is Scalar => one.value !== undefined);
}
