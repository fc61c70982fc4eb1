/**
 * However activations are kept, computed again, split or cut: losses and gradients have the same bits,
 * and stages hold the bytes that are planned.
 */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  type AnyLayer,
  type Batch,
  compileModel,
  gpt2,
  type Gpt2Config,
  type Handed,
  type LayerGraph,
  type Model,
  type Precision,
  PRECISIONS,
  type Recompute,
  RECOMPUTE_POLICIES,
  type Value,
} from "../../../kernels/mod.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";
import type { DropoutKey } from "../../../kernels/layers/dropout.ts";
import { isValue } from "../../../kernels/layers/layer.ts";
import { planMemory } from "../../../kernels/stage/memory.ts";
import type { StageOptions } from "../../../kernels/stage/options.ts";
import fc, { forAll } from "../../fast_check.ts";
import { atDepth } from "../../depth.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { preparing } from "../devices/webgpu/preparing.ts";
import {
  assertSameBits,
  drawTokens,
  inFlight,
  openStages,
  sharedDevices,
  train,
} from "./stage_runs.ts";
import { assertTrains, testPytorch } from "./pytorch.ts";
import { testFrozen, testLengths, testSteps } from "./suite.ts";

const open = sharedDevices(ISOLATE_DEVICES);

/** A way to compute the same. */
interface Way {
  readonly recompute: Recompute;
  readonly backward: "whole" | "split";
  readonly recomputeInterval: number | undefined;
}

const BACKWARDS = ["whole", "split"] as const, INTERVALS = [undefined, 1, 2, 100];
const WAYS: readonly Way[] = RECOMPUTE_POLICIES.flatMap((recompute) =>
  BACKWARDS.flatMap((backward) =>
    INTERVALS.map((recomputeInterval) => ({ recompute, backward, recomputeInterval }))
  )
);

const optionsOf = ({ backward, recomputeInterval }: Omit<Way, "recompute">): StageOptions => (
  { optimizer: ADAMW_DEFAULTS, backward, ...recomputeInterval && { recomputeInterval } }
);

/** Number of micro-batches with memory at a time: with a split backward, all of them wait for W. */
const slotsOf = (backward: Way["backward"]) => backward === "split" ? BATCHES.length : inFlight;

/** Every sixth way, or fewer: with several policies and intervals, and both kinds. */
const someWays = (first: number, every = 6) =>
  atDepth(WAYS.filter((_, i) => i % every === first % every), WAYS);

const KEY: DropoutKey = { seed: 7, step: 3, microBatch: 0 };
/** Rows, widths and a vocabulary at which another order of additions has other bits. */
const CONFIG: Gpt2Config = { layers: 3, hidden: 32, heads: 2, seq: 16, vocab: 67, dropout: 0.2 };
/** Cases that take long. */
const SHORTER = { ...CONFIG, layers: atDepth(2, 3) };
const BATCHES = drawTokens(4, 2 * CONFIG.seq, CONFIG.vocab);

/** Trains in each way on 1 to 4 stages, and compares bits and bytes. */
async function assertSame(
  device: ReturnType<typeof open>,
  config: Gpt2Config,
  precision: Precision,
  ways: readonly Way[],
): Promise<void> {
  const run = async ({ recompute, ...way }: Way, count: number) => {
    const program = compileModel(gpt2(config, 2), recompute, { precision });
    const options = optionsOf(way), stages = await openStages(device, program, count, options);
    const received = await train(stages, BATCHES, way.backward, KEY);
    const planned = cutIntoStages(program, count).map((stage) =>
      planMemory(stage, { ...options, slots: slotsOf(way.backward) })
    );
    const what = `${JSON.stringify({ recompute, ...way })} on ${count} stages`;
    assert.deepEqual(stages.map(({ memory }) => memory), planned, what);
    return { received, what };
  };
  const expected = await run(WAYS[0]!, 1);
  for (const [i, way] of ways.entries()) {
    const { received, what } = await run(way, 1 + i % 4);
    assertSameBits(received, expected.received, what);
  }
}

for (const [i, name] of ISOLATE_DEVICES.entries()) {
  for (const [j, precision] of PRECISIONS.entries()) {
    Deno.test(`recomputation, the split into I and W and the cut into stages change no bit on ${name} in ${precision}`, () =>
      name === "native"
        ? assertSame(open(name), CONFIG, precision, someWays(j))
        : assertSame(open(name), SHORTER, precision, someWays(4 * i + j, 12)));
  }
}

// What native has no FP16 kernel for it computes in FP32, and leaves out roundings between: for bits
// the reference is asked.
Deno.test("recomputation, the split and the cut change no bit in FP16 of models rewritten for a GPU", () =>
  assertSame(preparing(open("reference")), SHORTER, "fp16", someWays(3)));

Deno.test("recomputation, the split and the cut change no bit of a head in slices", () =>
  assertSame(open("native"), { ...CONFIG, layers: 1, headSlices: 3 }, "fp32", someWays(4)));

const SAMPLES = 2, WIDTH = 4;

/** The behavior of one layer, by random numbers. */
interface Drawn {
  /** The names that it takes. */
  readonly takes: readonly number[];
  /** The value that it gives: numbers, the output, ids, or a mask of positive numbers. */
  readonly gives: readonly ("new" | "same" | "ids" | "mask")[];
  /** Its output: half of its input, without a parameter or saved values. */
  readonly hands: "one" | "record" | "nothing" | "half";
}

const drawnLayer: fc.Arbitrary<Drawn> = fc.record({
  takes: fc.array(fc.nat(9), { maxLength: 3 }),
  gives: fc.array(fc.constantFrom("new", "same", "ids", "mask"), { maxLength: 2 }),
  hands: fc.constantFrom("one", "one", "record", "nothing", "half"),
});

/** Any value as numbers of [samples, width]. */
function numbers(g: LayerGraph, value: Value): Value {
  const floats = g.cast(value, "f32");
  return floats.shape.length === 1 ? g.reshape(floats, [SAMPLES, 1]) : floats;
}

const ids = (g: LayerGraph) => g.batch("ids", [SAMPLES], "i32");
const rows = (g: LayerGraph, own: Value) => g.gather(g.parameter("table", [5, WIDTH]), own);
const valuesOf = (x: Handed | undefined) =>
  x === undefined ? [] : isValue(x) ? [x] : Object.values(x);

/** A layer for each draw and a loss, which takes what no other does. */
function modelOf(drawn: readonly Drawn[]): Model {
  const known: string[] = [], unused = new Set<string>();
  const layers = drawn.map(({ takes, gives, hands }, i): AnyLayer => {
    const isHalf = hands === "half", takesSome = known.length > 0 && !isHalf;
    const taken = [...new Set(takesSome ? takes.map((n) => known[n % known.length]!) : [])];
    const given = (isHalf ? [] : gives).map((kind, nth) => ({ kind, name: `${kind} ${i}.${nth}` }));
    for (const name of taken) unused.delete(name);
    for (const { name } of given) known.push(name), unused.add(name);
    // What a layer computes must go somewhere.
    const isGiven = given.some(({ kind }) => kind === "new" || kind === "same");
    const build = (g: LayerGraph, x: Handed | undefined) => {
      const own = ids(g), handed = valuesOf(x).map((value) => numbers(g, value));
      const sum = (all: readonly Value[]) => all.reduce((a, b) => g.add(a, b));
      if (isHalf && handed.length > 0) return g.mul(sum(handed), g.scalar(0.5));
      let h = rows(g, own);
      for (const one of handed) h = g.add(g.mul(h, g.parameter(`w${h.name}`, [WIDTH])), one);
      for (const one of taken) h = g.tanh(g.add(h, numbers(g, g.take(one))));
      const mask = g.greater(h, g.scalar(0));
      for (const { kind, name } of given) {
        const grown = () => g.mul(h, g.parameter(`factor ${name}`, [WIDTH]));
        g.give(name, kind === "new" ? grown() : { same: h, ids: own, mask }[kind]);
      }
      const kept = g.where(mask, h, g.mul(h, g.scalar(0.5)));
      if (!isGiven || hands === "one") return kept;
      return hands === "nothing" ? {} : { kept, mask, twice: g.add(h, h) };
    };
    return { name: `layer ${i}`, build };
  });
  const loss: AnyLayer = {
    name: "loss",
    build(g, x) {
      const others = [...unused].map((name) => numbers(g, g.take(name)));
      const all = [...valuesOf(x).map((value) => numbers(g, value)), ...others];
      const h = all.reduce((sum, value) => g.add(sum, value), rows(g, ids(g)));
      return g.crossEntropy(h, g.batch("targets", [SAMPLES], "i32"));
    },
  };
  return { name: "random", layers: [...layers, loss], predictions: SAMPLES };
}

const SMALL_BATCHES: Batch[] = Array.from({ length: 4 }, (_, i) => ({
  ids: Int32Array.of(i % 5, (2 * i + 1) % 5),
  targets: Int32Array.of(i % WIDTH, (i + 1) % WIDTH),
}));

Deno.test("random models with records and skip edges have the bits of one stage, wherever they are cut", async () => {
  const lists = [
    fc.array(drawnLayer, { minLength: 2, maxLength: 6 }),
    fc.array(fc.nat(5), { maxLength: 4 }),
  ] as const;
  const device = open("reference"), ways = fc.constantFrom(...WAYS);
  await forAll(atDepth(25, 1000), [...lists, ways], async (drawn, cuts, way) => {
    const program = compileModel(modelOf(drawn), way.recompute), options = optionsOf(way);
    const starts = [...new Set([0, ...cuts.map((cut) => cut % program.layers.length)])];
    const cut = { ...program, starts: starts.sort((a, b) => a - b) };
    const whole = await train(await openStages(device, program, 1), SMALL_BATCHES, "whole");
    const stages = await openStages(device, cut, starts.length, options);
    const received = await train(stages, SMALL_BATCHES, way.backward);
    assertSameBits(received, whole, `cut at ${starts}`);
    for (const [i, stage] of cutIntoStages(cut, starts.length).entries()) {
      const planned = planMemory(stage, { ...options, slots: slotsOf(way.backward) });
      assert.deepEqual(stages[i]!.memory, planned);
    }
  });
});

/** Stages on every device that an isolate may open. */

for (const name of ISOLATE_DEVICES) {
  const device = () => open(name);
  testPytorch(name, device);
  testFrozen(name, device);
  testLengths(name, device);
  for (const precision of PRECISIONS) testSteps(name, device, precision);
}

const STEPS = atDepth(10, 30);

Deno.test(`${STEPS} steps of a tied and clipped GPT-2 on three stages have PyTorch's losses and norms`, () =>
  assertTrains(open("native"), "gpt2_tied", 3, STEPS));
