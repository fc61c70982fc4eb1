/**
 * A package for Troupe: a model whose last stage is a mixture of experts, and an actor that watches
 * which expert gets which digit. Nothing of Troupe is imported but types, so nothing of it is loaded.
 *
 * The experts are those of Jacobs et al. (1991), a small network each, and the router is that of the
 * Switch Transformer (Fedus et al., 2021): it sends a sample to the one expert with the highest gate,
 * and learns through that gate. Shapes are static, so all experts compute, and what the others found
 * is multiplied by zero.
 */

import type { ActorDefinition, Ask, ModelComponent, ModelOptions } from "@troupe/troupe/actors";
import type { Layer, LayerGraph, Value } from "@troupe/troupe";

type Sizes = ModelOptions<"inputs" | "classes">;

/** Weight of an even load relative to the cross-entropy. */
const BALANCE = 0.2;

/** Weights and a bias; the deviation of He et al. (2015) keeps the variance of activations. */
function linear(g: LayerGraph, x: Value, name: string, outputs: number): Value {
  const inputs = x.shape[1]!, deviation = Math.sqrt(2 / inputs);
  const weight = g.parameter(`${name}.weight`, [inputs, outputs], { kind: "normal", deviation });
  return g.gemm(x, weight, g.parameter(`${name}.bias`, [outputs], { kind: "constant", value: 0 }));
}

/** Gates of all experts, and the gate of the chosen expert of each sample: [samples, experts]. */
function route(g: LayerGraph, x: Value, experts: number) {
  const gates = g.softmax(g.gemm(x, g.parameter("router", [x.shape[1]!, experts])));
  const highest = g.split(gates, 1, experts).reduce((a, b) => g.where(g.greater(a, b), a, b));
  return { gates, taken: g.where(g.greater(highest, gates), g.scalar(0), gates) };
}

/**
 * What each expert adds to the logits, [experts, samples, classes]; and the loss of an uneven load,
 * experts · Σ share of samples · mean gate, which is 1 where all experts get as many.
 */
function mixture(g: LayerGraph, x: Value, { experts = 4, hidden, microBatch, data }: Sizes) {
  const { classes } = data, deviation = Math.sqrt(2 / hidden);
  const { gates, taken } = route(g, x, experts);
  const inner = g.relu(linear(g, x, "in", experts * hidden));
  const own = g.transpose(g.reshape(inner, [microBatch, experts, hidden]), [1, 0, 2]);
  const weight = g.parameter("out", [experts, hidden, classes], { kind: "normal", deviation });
  const gate = g.reshape(g.transpose(taken, [1, 0]), [experts, microBatch, 1]);
  const isTaken = g.where(g.greater(taken, g.scalar(0)), g.scalar(1), g.scalar(0));
  const load = g.sum(g.mul(g.mean(isTaken, [0]), g.mean(gates, [0])));
  return {
    votes: g.mul(g.matmul(own, weight), gate),
    balance: g.mul(load, g.scalar(BALANCE * experts)),
  };
}

/** Dense layers, and the mixture: all but the first take what the layer before has computed. */
const layersOf = ({ layers, hidden, microBatch, data }: Sizes, last: Layer["build"]): Layer[] => {
  const dense = (i: number): Layer => ({
    name: `hidden ${i}`,
    build: (g, x) =>
      g.gelu(linear(g, x ?? g.batch("features", [microBatch, data.inputs]), "dense", hidden)),
  });
  return [...Array.from({ length: layers }, (_, i) => dense(i)), { name: "experts", build: last }];
};

/** The model: `--experts` says how many experts there are, 4 unless given. */
export const model: ModelComponent<"inputs" | "classes"> = {
  name: "digit-experts",
  version: "1.0.0",
  sizes: ["inputs", "classes"],
  data: "mnist",
  build: (sizes) => ({
    name: "digit-experts",
    layers: layersOf(sizes, (g, x) => {
      const { votes, balance } = mixture(g, x!, sizes);
      const labels = g.batch("labels", [sizes.microBatch], "i32");
      return g.add(g.crossEntropy(g.sum(votes, [0]), labels), balance);
    }),
    predicting: layersOf(sizes, (g, x) => mixture(g, x!, sizes).votes),
    predictions: sizes.microBatch,
  }),
};

/** Messages of the actor. */
export type Watching =
  | { type: "Predicted"; votes: Float32Array; labels: Int32Array }
  | { type: "Report" } & Ask<Seen>;

/** For each class: how many samples there were, were recognised, and went to each expert. */
export type Seen = { samples: number[]; right: number[]; routed: number[][] };

/** The actor: it needs no permissions, and gets none. */
export const actor: ActorDefinition<{ classes: number; experts: number }, Watching> = {
  name: "expert-load",
  protocol: 1,
  messages: {
    Predicted: {
      properties: { votes: { instanceof: "Float32Array" }, labels: { instanceof: "Int32Array" } },
      required: ["votes", "labels"],
    },
    Report: {},
  },
  create(ctx, { classes, experts }) {
    const zeros = (count: number) => Array.from({ length: count }, () => 0);
    const routed = zeros(classes).map(() => zeros(experts));
    const seen: Seen = { samples: zeros(classes), right: zeros(classes), routed };
    return {
      Predicted({ votes, labels }) {
        labels.forEach((label, i) => {
          const logits = zeros(classes);
          for (let expert = 0; expert < experts; expert++) {
            const from = (expert * labels.length + i) * classes;
            const its = votes.subarray(from, from + classes);
            its.forEach((vote, digit) => logits[digit]! += vote);
            if (its.some((vote) => vote !== 0)) seen.routed[label]![expert]!++;
          }
          seen.samples[label]!++;
          if (logits.indexOf(Math.max(...logits)) === label) seen.right[label]!++;
        });
      },
      Report: () => ctx.reply(seen),
    };
  },
};
