/**
 * Random models with records and skip edges: however they are cut, losses and gradients have the bits
 * of one stage, and stages hold the bytes that are planned.
 */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  activationBytes,
  type AnyLayer,
  type Batch,
  compileModel,
  cutIntoStages,
  type Handed,
  isValue,
  type LayerGraph,
  type Model,
  openReference,
  type Value,
} from "../../../kernels/mod.ts";
import {
  assertSameBits,
  backward,
  compilingOnce,
  forward,
  openStages,
  train,
} from "./stage_runs.ts";

const SAMPLES = 2, WIDTH = 4;

/** What one layer does, by numbers that are drawn. */
interface Drawn {
  /** Which of the names that there are it takes. */
  readonly takes: readonly number[];
  /** What it gives: numbers, the output itself, ids, or which numbers are positive. */
  readonly gives: readonly ("new" | "same" | "ids" | "mask")[];
  /** What it hands on. */
  readonly hands: "one" | "record" | "nothing";
}

const drawnLayer: fc.Arbitrary<Drawn> = fc.record({
  takes: fc.array(fc.nat(9), { maxLength: 3 }),
  gives: fc.array(fc.constantFrom("new", "same", "ids", "mask"), { maxLength: 2 }),
  hands: fc.constantFrom("one", "one", "record", "nothing"),
});

/** Any value as numbers of [samples, width]. */
function numbers(g: LayerGraph, value: Value): Value {
  const floats = g.cast(value, "f32");
  return floats.shape.length === 1 ? g.reshape(floats, [SAMPLES, 1]) : floats;
}

const ids = (g: LayerGraph) => g.batch("ids", [SAMPLES], "i32");

/** A layer for each draw and a loss, which takes what no other does. */
function modelOf(drawn: readonly Drawn[]): Model {
  const known: string[] = [], unused = new Set<string>();
  const plans = drawn.map(({ takes, gives, hands }, i) => {
    const taken = [...new Set(known.length ? takes.map((n) => known[n % known.length]!) : [])];
    const given = gives.map((kind, nth) => ({ kind, name: `${kind} ${i}.${nth}` }));
    for (const name of taken) unused.delete(name);
    for (const { name } of given) known.push(name), unused.add(name);
    // What a layer computes must go somewhere.
    const isGiven = gives.some((kind) => kind === "new" || kind === "same");
    return { taken, given, hands: isGiven ? hands : "one", name: `layer ${i}` };
  });
  const layers = plans.map(({ taken, given, hands, name }): AnyLayer => ({
    name,
    build(g, x: Handed | undefined) {
      const handed = x === undefined ? [] : isValue(x) ? [x] : Object.values(x);
      const own = ids(g);
      let h = g.gather(g.parameter("table", [5, WIDTH]), own);
      for (const value of handed) {
        h = g.add(g.mul(h, g.parameter(`w${h.name}`, [WIDTH])), numbers(g, value));
      }
      for (const one of taken) h = g.tanh(g.add(h, numbers(g, g.take(one))));
      const positive = g.greater(h, g.scalar(0));
      for (const { kind, name } of given) {
        if (kind === "same") g.give(name, h);
        if (kind === "new") g.give(name, g.mul(h, g.parameter(`factor ${name}`, [WIDTH])));
        if (kind === "ids") g.give(name, own);
        if (kind === "mask") g.give(name, positive);
      }
      const kept = g.where(positive, h, g.mul(h, g.scalar(0.5)));
      return hands === "one"
        ? kept
        : hands === "nothing"
        ? {}
        : { kept, positive, twice: g.add(h, h) };
    },
  }));
  const loss: AnyLayer = {
    name: "loss",
    build(g, x) {
      const handed = isValue(x) ? [x] : Object.values(x!);
      let h = g.gather(g.parameter("table", [5, WIDTH]), ids(g));
      for (const value of handed) h = g.add(h, numbers(g, value));
      for (const name of unused) h = g.add(h, numbers(g, g.take(name)));
      return g.crossEntropy(h, g.batch("targets", [SAMPLES], "i32"));
    },
  };
  return { name: "random", layers: [...layers, loss], predictions: SAMPLES };
}

const BATCHES: Batch[] = Array.from({ length: 4 }, (_, i) => ({
  ids: Int32Array.of(i % 5, (2 * i + 1) % 5),
  targets: Int32Array.of(i % WIDTH, (i + 1) % WIDTH),
}));

const cases = fc.record({
  drawn: fc.array(drawnLayer, { minLength: 2, maxLength: 6 }),
  cuts: fc.array(fc.nat(5), { maxLength: 4 }),
  kind: fc.constantFrom("whole", "split"),
  recomputeInterval: fc.constantFrom(undefined, 1, 2),
  recompute: fc.constantFrom("none", "cheap", "full"),
});

Deno.test("random models with records and skip edges have the bits of one stage, wherever they are cut", async () => {
  const device = compilingOnce(await openReference());
  await fc.assert(
    fc.asyncProperty(cases, async ({ drawn, cuts, kind, recomputeInterval, recompute }) => {
      const program = compileModel(modelOf(drawn), recompute);
      const starts = [...new Set([0, ...cuts.map((cut) => cut % program.layers.length)])];
      const cut = { ...program, starts: starts.sort((a, b) => a - b) };
      const options = { backward: kind, ...recomputeInterval && { recomputeInterval } };
      const whole = await train(await openStages(device, program, 1), BATCHES, "whole");
      const stages = await openStages(device, cut, starts.length, options);
      assertSameBits(await train(stages, BATCHES, kind), whole, `cut at ${starts}`);
    }),
    { numRuns: 150 },
  );
  device.close();
});

Deno.test("and their stages hold the bytes that are planned", async () => {
  const device = compilingOnce(await openReference());
  await fc.assert(
    fc.asyncProperty(cases, async ({ drawn, cuts, kind, recomputeInterval, recompute }) => {
      const program = compileModel(modelOf(drawn), recompute);
      const starts = [...new Set([0, ...cuts.map((cut) => cut % program.layers.length)])];
      const cut = { ...program, starts: starts.sort((a, b) => a - b) };
      const options = { backward: kind, ...recomputeInterval && { recomputeInterval } };
      const stages = await openStages(device, cut, starts.length, options);
      for (let m = 0; m < 2; m++) await forward(stages, m, BATCHES[m]!);
      for (const m of [0, 1]) await backward(stages, m, kind === "whole" ? "B" : "I");
      for (const [i, stage] of cutIntoStages(cut, starts.length).entries()) {
        const { perMicroBatch, shared } = activationBytes(stage, options);
        assert.equal(stages[i]!.memory.device.activations, 2 * perMicroBatch + shared);
      }
    }),
    { numRuns: 60 },
  );
  device.close();
});
