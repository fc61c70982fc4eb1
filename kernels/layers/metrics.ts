/**
 * Losses of models, and metrics such as accuracy.
 *
 * [Note: sums of metrics] The last layer returns for each sample its loss, then the terms of its
 * metrics, without gradients. So they travel with the loss under every schedule, and weights keep
 * their bits. Terms are added in FP64, in the order of micro-batches and of samples in them.
 *
 * @module
 */

import { countTargets } from "../batch.ts";
import { assertInput } from "../errors.ts";
import { sameShape } from "../graph/shapes.ts";
import type { Value } from "../graph/value.ts";
import {
  type AnyLayer,
  type Handed,
  isValue,
  type Layer,
  type LayerGraph,
  type Metric,
  type Model,
} from "./layer.ts";

type Metrics = NonNullable<Model["metrics"]>;

type SampleTerm = Metric["terms"][string];

const metricOf = (metric: Metric | SampleTerm): Metric =>
  typeof metric === "function"
    ? { terms: { term: metric }, value: ({ term }, predictions) => term! / predictions }
    : metric;

const termsOf = (metrics: Metrics) =>
  Object.entries(metrics).flatMap(([name, metric]) =>
    Object.entries(metricOf(metric).terms).map(([term, of]) => ({ name, term, of }))
  );

/** Throws unless each metric is a number of each sample, or sums with a value. */
function checkMetrics(metrics: Metrics): void {
  for (const [name, metric] of Object.entries<unknown>(metrics)) {
    const { terms, value } = Object(metric) as Partial<Metric>;
    const all = [value, ...Object.values(terms ?? {})];
    const isMetric = typeof metric === "function" ||
      (all.length > 1 && all.every((one) => typeof one === "function"));
    const must = "it must be a function, or have terms and value";
    assertInput(isMetric, `use the metric "${name}"`, must, typeof metric, TypeError);
  }
}

/**
 * Returns the term that is 1 for samples whose class has the highest logit, otherwise 0. Its mean is
 * the accuracy.
 *
 * @param field of the micro-batch with the class of each sample, i32 [samples].
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { accuracy, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph(), logits = g.input("logits", [8, 3]);
 * assert.deepEqual(accuracy("species")(g, logits).shape, [8]);
 * assert.deepEqual(g.fields.map(({ spec }) => spec.name), ["species"]);
 * ```
 */
export function accuracy(field: string): Metric["terms"][string] {
  return (g, logits) => g.cast(g.equal(...classes(g, logits, field)), "f32");
}

/**
 * Returns the F1 score of a class: 2·TP ÷ (2·TP + FP + FN); 0 if it is neither there nor predicted.
 * Samples with class −1, which have no loss, do not count.
 */
export function f1Score(field: string, positive = 1): Metric {
  const is = (g: LayerGraph, of: Value) => g.cast(g.equal(of, g.int64([positive])), "f32");
  return {
    terms: {
      both: (g, logits) => {
        const [predicted, actual] = classes(g, logits, field), last = logits.shape[1]! - 1;
        const must = `its class must be a whole number from 0 to ${last}`;
        assertInput(positive >= 0 && positive <= last, "measure the F1 score", must, positive);
        return g.mul(is(g, predicted), is(g, actual));
      },
      predicted: (g, logits) => {
        const [predicted, actual] = classes(g, logits, field);
        return g.mul(is(g, predicted), g.cast(g.greater(actual, g.int64([-1])), "f32"));
      },
      actual: (g, logits) => is(g, classes(g, logits, field)[1]),
    },
    value: ({ both, predicted, actual }) => both === 0 ? 0 : 2 * both! / (predicted! + actual!),
  };
}

/** Returns the predicted and the actual class of each sample. */
function classes(g: LayerGraph, logits: Value, field: string): [predicted: Value, actual: Value] {
  const [samples, count = 1, ...more] = logits.shape, actual = g.batch(field, [samples!], "i32");
  const must = "the output must be a score of each class, [samples, classes]";
  assertInput(count > 1 && more.length === 0, "compare classes", must, `[${logits.shape}]`);
  return [g.argMax(logits, 1, false), g.cast(actual, "i64")];
}

/** Returns a model of logits of classes, with the field `labels`, for a number of samples. */
export function classifier(
  name: string,
  layersOf: (samples: number) => readonly Layer[],
  samples: number,
): Model {
  const lossOf = (g: LayerGraph, logits: Value) =>
    g.crossEntropy(logits, g.batch("labels", [samples], "i32"));
  return {
    name,
    layers: withLoss(layersOf(samples), lossOf),
    predictions: (batch) => countTargets(batch, "labels"),
    samples,
    withSamples: (other) => classifier(name, layersOf, other),
  };
}

/** Replaces the last of some layers by a layer that returns the loss of each sample. */
export const withLoss = (layers: readonly Layer[], lossOf: SampleTerm): Layer[] =>
  withLossAndMetrics(layers, lossOf) as Layer[];

/**
 * Replaces the last of some layers by a layer that returns the loss of each sample and, after it, the
 * terms of the metrics.
 *
 * @param samples of a micro-batch: a mean over them would be divided by their number once more.
 */
export function withLossAndMetrics(
  layers: readonly AnyLayer[],
  lossOf: SampleTerm,
  metrics: Metrics = {},
  samples = 1,
): AnyLayer[] {
  checkMetrics(metrics);
  const last = layers.at(-1)!, terms = termsOf(metrics);
  const build = (g: LayerGraph, x: Handed | undefined): Value => {
    const output = last.build(g, x);
    if (!isValue(output)) throw new TypeError("the output of a model must be one value");
    const loss = lossOf(g, output), found = isValue(loss) ? `${loss.dtype} [${loss.shape}]` : loss;
    const [rows = 0, ...more] = isValue(loss) && loss.dtype === "f32" ? loss.shape : [];
    const isLoss = rows > 0 && rows % samples === 0 && more.length === 0;
    const must = `it must return the loss of each sample, f32 [${samples}]`;
    assertInput(isLoss, "use the loss", must, found, TypeError);
    if (terms.length === 0) return loss;
    const columns = terms.map(({ name, of }) => {
      const term = of(g, output);
      if (term.dtype === "f32" && sameShape(term.shape, loss.shape)) return g.stopGradient(term);
      const must = `must be a number of each sample, f32 [${loss.shape}]`;
      throw new TypeError(`the metric "${name}" ${must}, received ${term.dtype} [${term.shape}]`);
    });
    const all = [loss, ...columns].map((column) => g.reshape(column, [rows, 1]));
    return g.reshape(g.concat(all, 1), [-1]);
  };
  return [...layers.slice(0, -1), { ...last, build }];
}

/**
 * Reads the losses and the metrics that {@linkcode withLossAndMetrics} returns.
 *
 * @returns the loss of each sample, by micro-batch; and the metrics by name, if the model has any.
 */
export function measureSamples(
  outputs: readonly Float32Array[],
  metrics: Metrics | undefined,
  predictions: number,
) {
  const terms = termsOf(metrics ?? {}), stride = terms.length + 1;
  if (stride === 1) return { losses: outputs, metrics: undefined };
  const sums: Record<string, Record<string, number>> = {};
  for (const { name, term } of terms) (sums[name] ??= {})[term] = 0;
  const losses = outputs.map((output) => {
    const own = new Float32Array(output.length / stride);
    for (let sample = 0; sample < own.length; sample++) {
      own[sample] = output[sample * stride]!;
      terms.forEach(({ name, term }, i) => sums[name]![term]! += output[sample * stride + i + 1]!);
    }
    return own;
  });
  const values = Object.entries(metrics!).map(([name, metric]) =>
    [name, metricOf(metric).value(sums[name]!, predictions)] as const
  );
  return { losses, metrics: Object.fromEntries(values) };
}
