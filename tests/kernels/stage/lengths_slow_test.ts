/** Samples of several lengths: losses and gradients are those of padded ones, in the memory of the longest. */

import assert from "node:assert/strict";
import { planMemory } from "../../../kernels/stage/memory.ts";
import { batchCheck } from "../../../kernels/compile/compile_model.ts";
import { lengthsOf } from "../../../kernels/batch.ts";
import {
  ADAMW_DEFAULTS,
  type Batch,
  compileModel,
  gpt2,
  llama,
  mlp,
  type Model,
  t5,
} from "../../../kernels/mod.ts";
import { atDepth } from "../../depth.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { assertClose } from "./pytorch.ts";
import {
  assertSameBits,
  compilingBy,
  drawTokens,
  inFlight,
  openStages,
  sharedDevices,
  train,
} from "./stage_runs.ts";
import { assertRefused } from "../graph/refused.ts";

const SAMPLES = 2, CONFIG = { layers: 2, hidden: 16, heads: 2, seq: 16, vocab: 32 };
const MODELS: readonly Model[] = [
  gpt2({ ...CONFIG, headSlices: 2 }, SAMPLES),
  llama({ ...CONFIG, tie: true }, SAMPLES),
  t5(CONFIG, SAMPLES),
];

/** Micro-batches of some lengths, in no order, and the same padded to the longest. */
function drawLengths() {
  const all = lengthsOf(CONFIG.seq), lengths = [0, 6, 3, 6, 0].map((i) => all[i]!);
  const padded = drawTokens(lengths.length, SAMPLES * CONFIG.seq, CONFIG.vocab);
  const rows = [...Array(SAMPLES).keys()].map((row) => row * CONFIG.seq);
  const cut = (array: Int32Array, length: number) =>
    Int32Array.from(rows.flatMap((from) => [...array.subarray(from, from + length)]));
  const own = padded.map(({ ids, targets }, m) => (
    { ids: cut(ids, lengths[m]!), targets: cut(targets, lengths[m]!) }
  ));
  for (const [m, batch] of padded.entries()) {
    for (const row of rows) {
      batch.ids.fill(0, row + lengths[m]!, row + CONFIG.seq);
      batch.targets.fill(-1, row + lengths[m]!, row + CONFIG.seq);
    }
  }
  return { own, padded };
}

const open = sharedDevices(ISOLATE_DEVICES);

/** Kinds of backward, and how often a layer is computed again: 0 is never. */
const WAYS = [["whole", 0], ["split", 1], ["split", 0]] as const;

for (const name of ISOLATE_DEVICES) {
  Deno.test(`lengths on ${name} have the losses and gradients of padded samples, whatever is recomputed, in the planned memory`, async () => {
    const { own, padded } = drawLengths();
    for (const model of name === "native" ? MODELS : MODELS.slice(0, atDepth(1, 3))) {
      const whole = await openStages(open(name), compileModel(model, "none"), 2);
      const expected = await train(whole, padded, "whole");
      let bits: ReadonlyMap<string, Float32Array> | undefined;
      for (const [kind, interval] of WAYS.slice(0, name === "native" ? 3 : atDepth(2, 3))) {
        const program = compileModel(model, "none", { lengths: true });
        const options = { backward: kind, ...interval && { recomputeInterval: interval } };
        const stages = await openStages(open(name), program, 1, options);
        const received = await train(stages, own, kind), what = `${model.name} ${kind} ${interval}`;
        assertClose(received, expected, 1e-5, what);
        assertSameBits(received, bits ??= received, what);
        // W is late, so all micro-batches of a split run are in flight.
        const slots = kind === "split" ? own.length : inFlight;
        const plan = { ...options, optimizer: ADAMW_DEFAULTS, slots };
        assert.deepEqual(stages[0]!.memory, planMemory(program, plan), what);
      }
    }
  });
}

Deno.test("the longest samples alone have the bits of a stage that knows no other length", async () => {
  const { own } = drawLengths(), dropout = { seed: 1, step: 2, microBatch: 0 };
  const batches: Batch[] = [own[0]!, own[0]!];
  const [one, all] = await Promise.all([false, true].map(async (lengths) => {
    const model = compileModel(gpt2({ ...CONFIG, dropout: 0.2 }, SAMPLES), "cheap", { lengths });
    return await train(await openStages(open("native"), model, 2), batches, "whole", dropout);
  }));
  assertSameBits(all!, one!, "the longest");
});

Deno.test("a length is compiled when its first micro-batch comes, once", async () => {
  let compiled = 0;
  const reference = open("reference");
  const device = compilingBy(reference, (model) => (compiled++, reference.compile(model)));
  const { own } = drawLengths(), model = compileModel(MODELS[0]!, "none", { lengths: true });
  const stages = await openStages(device, model, 1), counts = [];
  for (const fields of [own[0]!, own[0]!, own[1]!, own[0]!, own[1]!]) {
    const before = compiled;
    await train(stages, [fields], "whole");
    counts.push(compiled > before);
  }
  assert.deepEqual(counts, [true, false, true, false, false]);
});

Deno.test("a micro-batch of no length, and a model without lengths, are refused by name", () => {
  const check = batchCheck(compileModel(MODELS[1]!, "none", { lengths: true }));
  const { own } = drawLengths(), ids = new Int32Array(9);
  assert.deepEqual(own.map((batch) => check(batch)), own.map(() => undefined));
  assert.match(check({ ids, targets: ids })!, /must have the field "ids", Int32Array of \[2,16\]/);
  assert.match(check({ ...own[1]!, targets: own[1]!.ids!.map(() => 32) })!, /from -1 to 31/);
  const none = mlp({ inputs: 2, hidden: 4, layers: 1, classes: 3 }, 1);
  const other: Model = { ...MODELS[1]!, withLength: () => MODELS[0]! };
  const compile = (model: Model) => compileModel(model, "none", { lengths: true });
  return assertRefused("samples_of_lengths", [() => compile(none), () => compile(other)]);
});
