/** A small model with skip edges: records of three types, and values that later layers take by name. */

import type { AnyLayer, Batch, Handed, Layer, Model, Value } from "../../../kernels/mod.ts";

/** The width of the values passed between layers. */
const WIDTH = 8;

type Masked = { readonly h: Value; readonly ids: Value; readonly mask: Value };

type Build<In extends Handed, Out extends Handed> = Layer<In, Out>["build"];

/** Returns layers that pass on a record and output all values at the end. */
function encoderOf(samples: number): AnyLayer[] {
  /** Looks up rows of a table, with the ids and their mask; outputs the first rows and a scale. */
  const embed: Build<Value, Masked> = (g) => {
    const ids = g.batch("ids", [samples], "i32");
    const h = g.gather(g.parameter("table", [5, WIDTH]), ids);
    g.give("early", h);
    g.give("scale", g.exp(g.parameter("log_scale", [WIDTH])));
    const mask = g.greater(ids, g.constant(Int32Array.of(0), [], "i32"));
    g.give("count", mask);
    return { h, ids, mask };
  };

  /** Mixes, with the mask; passes the record on. */
  const mix: Build<Masked, Masked> = (g, x) => {
    const { h, ids, mask } = x!;
    const next = g.tanh(g.gemm(h, g.parameter("weight", [WIDTH, WIDTH])));
    const kept = g.where(g.reshape(mask, [samples, 1]), next, h);
    return { h: g.add(kept, g.gather(g.parameter("bias", [5, WIDTH]), ids)), ids, mask };
  };

  /** Takes the outputs of the embedding, and passes on one tensor. */
  const cross: Build<Masked, Masked> = (g, x) => {
    const both = g.concat([x!.h, g.mul(g.take("early"), g.take("scale"))], 1);
    return { ...x!, h: g.gelu(g.gemm(both, g.parameter("weight", [2 * WIDTH, WIDTH]))) };
  };

  /** Outputs its values, and passes nothing on. */
  const end: Build<Masked, Record<never, never>> = (g, x) => {
    g.give("memory", g.mul(x!.h, g.parameter("weight", [WIDTH])));
    g.give("ids", g.add(g.cast(x!.ids, "f32"), g.cast(x!.mask, "f32")));
    return {};
  };

  const mixes = ["1", "2"].flatMap((i) => [
    { name: `mix ${i}`, build: mix },
    { name: `cross ${i}`, build: cross },
  ]);
  const ends = [{ name: "embedding", build: embed }, { name: "encoded", build: end }];
  return ends.toSpliced(1, 0, ...mixes) as AnyLayer[];
}

/** Returns layers that start a new chain and take outputs of the earlier layers. */
function decoderOf(samples: number): AnyLayer[] {
  const start: Build<Value, Value> = (g) =>
    g.gather(g.parameter("table", [5, WIDTH]), g.batch("targets", [samples], "i32"));

  const attend: Build<Value, Value> = (g, x) => {
    const mixed = g.add(g.gemm(x!, g.parameter("weight", [WIDTH, WIDTH])), g.take("memory"));
    return g.tanh(g.mul(mixed, g.take("scale")));
  };

  const head: Build<Value, Value> = (g, x) => {
    const kept = g.where(g.reshape(g.take("count"), [samples, 1]), x!, g.take("memory"));
    const shift = g.reshape(g.take("ids"), [samples, 1]);
    const logits = g.gemm(g.add(kept, shift), g.parameter("weight", [WIDTH, 5]));
    return g.crossEntropy(logits, g.batch("targets", [samples], "i32"));
  };

  const builds = { start, "attend 1": attend, "attend 2": attend, head };
  return Object.entries(builds).map(([name, build]) => ({ name, build })) as AnyLayer[];
}

/** Samples of a micro-batch. */
const B = 4;

/** Ten layers; values are taken up to nine layers later, some by several. */
export const SKIPPING: Model = modelOf(B);

function modelOf(samples: number): Model {
  return {
    ...{ name: "skipping", predictions: samples, samples, withSamples: modelOf },
    layers: [...encoderOf(samples), ...decoderOf(samples)],
  };
}

/** Micro-batch number i, always the same. */
export const batch = (i: number): Batch => ({
  ids: Int32Array.from({ length: B }, (_, j) => (3 * i + 2 * j) % 5),
  targets: Int32Array.from({ length: B }, (_, j) => (i + 3 * j) % 5),
});

/** Micro-batches without end. */
export function* batches(): Generator<Batch, void> {
  for (let i = 0;; i++) yield batch(i);
}
