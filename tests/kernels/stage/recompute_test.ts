/** Activation checkpointing: the same bits from less memory, and how much less. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  activationBytes,
  bestRecomputeInterval,
  compileModel,
  cutIntoStages,
  type Device,
  elementCount,
  gpt2,
  type Layer,
  openDevice,
  openReference,
  PRECISIONS,
  type Recompute,
  RECOMPUTE_POLICIES,
  stageBorder,
  type StageOptions,
} from "../../../kernels/mod.ts";
import {
  assertSameBits,
  backward,
  compilingOnce,
  drawTokens,
  forward,
  openStages,
  train,
} from "./stage_runs.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";

const CONFIG = { layers: 5, hidden: 16, heads: 2, seq: 8, vocab: 32 };
const BATCHES = drawTokens(4, 2 * CONFIG.seq, CONFIG.vocab);
const KINDS = ["whole", "split"] as const;

async function withDevice<R>(name: string, use: (device: Device) => Promise<R>): Promise<R> {
  const device = await openDevice(name);
  try {
    return await use(compilingOnce(device));
  } finally {
    device.close();
  }
}

for (const name of ISOLATE_DEVICES) {
  for (const precision of PRECISIONS) {
    Deno.test(`recomputing segments of layers changes no bit on ${name} in ${precision}`, async () => {
      await withDevice(name, async (device) => {
        const models = new Map(RECOMPUTE_POLICIES.map((policy) => [
          policy,
          compileModel(gpt2(CONFIG, 2), policy, { precision }),
        ]));
        const run = async (policy: Recompute, options: Partial<StageOptions>) => {
          const stages = await openStages(device, models.get(policy)!, 2, options);
          return await train(stages, BATCHES, options.backward === "split" ? "split" : "whole");
        };
        const expected = await run("none", { backward: "whole" });
        const intervals = name === "native" && precision === "fp32" ? [1, 2, 3, 100] : [2];
        for (const recomputeInterval of intervals) {
          for (const policy of name === "wasm" ? ["cheap"] as const : RECOMPUTE_POLICIES) {
            for (const kind of KINDS) {
              const received = await run(policy, { backward: kind, recomputeInterval });
              assertSameBits(
                received,
                expected,
                `interval ${recomputeInterval}, ${policy}, ${kind}`,
              );
            }
          }
        }
      });
    });
  }
}

Deno.test("the bytes that are planned for activations are those that are allocated", async () => {
  const model = compileModel(gpt2(CONFIG, 2), "cheap");
  for (const recomputeInterval of [undefined, 1, 2, 4]) {
    for (const kind of ["never", ...KINDS] as const) {
      const options = { backward: kind, ...recomputeInterval && { recomputeInterval } };
      for (const [i, program] of cutIntoStages(model, 3).entries()) {
        await withDevice("reference", async (device) => {
          const { perMicroBatch, shared } = activationBytes(program, options);
          const [alone] = await openStages(device, { ...model, ...program }, 1, options);
          const opened = device.allocatedBytes;
          const [input] = stageBorder(program).inputs;
          const x = input && new Float32Array(elementCount(input.shape));
          for (let m = 0; m < 2; m++) {
            await alone!.forward(m, x, BATCHES[0]!);
            const taken = device.allocatedBytes - opened;
            assert.equal(taken, (m + 1) * perMicroBatch, `stage ${i}, ${JSON.stringify(options)}`);
          }
          const { weights, moments } = await alone!.save();
          const elements = [...weights.values()].map(({ length }) => 16 * Math.ceil(length / 16));
          const parameters = 4 * 4 * elements.reduce((a, b) => a + b, 0);
          assert.equal(moments.size, 2 * weights.size);
          // Scalars: the loss scale, those of AdamW for two sorts, a square for each parameter.
          const scalars = 4 * (1 + 2 * 4 + weights.size);
          assert.equal(opened - parameters - scalars, shared, "what all micro-batches share");
        });
      }
    }
  }
});

/** y = tanh(x·w): saves nothing but its output. */
const LAYERS = 12, ROWS = 16, WIDTH = 8;
const uniform: Layer[] = Array.from({ length: LAYERS }, (_, i): Layer => ({
  name: `layer ${i}`,
  build: (g, x) =>
    g.tanh(g.matmul(x ?? g.batch("x", [ROWS, WIDTH]), g.parameter("w", [WIDTH, WIDTH]))),
}));

Deno.test("a worker of equal layers needs what the formula says: G·N/(G·ac) inputs and ac layers", () => {
  const workers = 2, unit = 4 * ROWS * WIDTH;
  const loss: Layer = { name: "loss", build: (g, x) => g.sum(x!, [1]) };
  const model = compileModel({ name: "m", layers: [...uniform, loss], predictions: 1 }, "none");
  // The second half without the loss is the stage of the middle: it has an input and an output.
  const own = { ...model, layers: model.layers.slice(LAYERS / workers, LAYERS) };
  for (const ac of [1, 2, 3, 6]) {
    const whole = activationBytes(own, { backward: "whole", recomputeInterval: ac });
    assert.equal(whole.perMicroBatch, unit * LAYERS / (workers * ac), `interval ${ac}`);
    // Layer by layer the output and its saved copy, but for the output that is kept; and two
    // gradients between layers.
    const layer = own.programs[own.layers[0]!.program]!;
    assert.equal(layer.saved.length, 1);
    assert.equal(whole.shared, unit * (2 * ac + 2), `interval ${ac}`);
  }
});

Deno.test("the best interval has the least of G(N/(G·ac) + 1) + ac, within a worker's layers", () => {
  const size = fc.integer({ min: 1, max: 200 });
  fc.assert(fc.property(size, size, (layers, workers) => {
    const units = (ac: number) => workers * (layers / (workers * ac) + 1) + ac;
    const best = bestRecomputeInterval(layers, workers);
    const most = Math.ceil(layers / workers);
    assert.ok(best >= 1 && best <= most);
    for (let ac = 1; ac <= most; ac++) assert.ok(units(best) <= units(ac) + 1e-9, `${ac}`);
  }));
  assert.equal(bestRecomputeInterval(100, 4), 10);
  assert.throws(() => bestRecomputeInterval(0, 1), /layers must be a positive integer, received 0/);
});

/** A device that counts what it computes. */
async function openCounting() {
  const device = await openReference();
  let runs = 0;
  const counted = new Proxy(device, {
    get(target, key: keyof Device) {
      if (key !== "compile") {
        const value = target[key];
        return typeof value === "function" ? value.bind(target) : value;
      }
      return async (model: Uint8Array) => {
        const kernel = await target.compile(model);
        const bind: typeof kernel.bind = (inputs, outputs) => {
          const run = kernel.bind(inputs, outputs);
          return () => (runs++, run());
        };
        return { ...kernel, bind };
      };
    },
  });
  const countRuns = async (action: () => Promise<unknown>) => {
    runs = 0;
    await action();
    return runs;
  };
  return { device: counted, countRuns, [Symbol.dispose]: () => device.close() };
}

Deno.test("a backward runs forwards again only where their activations are gone", async () => {
  using counting = await openCounting();
  const { device, countRuns } = counting;
  const model = compileModel(gpt2({ ...CONFIG, layers: 4 }, 2), "none");
  const stages = await openStages(device, model, 1, { backward: "split", recomputeInterval: 2 });
  const [first, second] = BATCHES;
  assert.equal(await countRuns(() => forward(stages, 0, first!)), 10);
  // Segments [embedding, 0] [1, 2] [3, head], a block being two layers: F has left the last.
  // The head's logits are written over, in two steps, wherever they were computed.
  assert.equal(await countRuns(() => backward(stages, 0, "B")), 7 + 2 + 10);
  await forward(stages, 0, first!);
  await forward(stages, 1, second!);
  assert.equal(await countRuns(() => backward(stages, 0, "B")), 10 + 2 + 10);
  // I has no kernel for the embedding; it leaves the first segment, which W needs last.
  assert.equal(await countRuns(() => backward(stages, 1, "I")), 10 + 2 + 9);
  assert.equal(await countRuns(() => backward(stages, 1, "W")), 10 + 2 + 10);
});

Deno.test("what R has computed again the next backward of its micro-batch does not", async () => {
  using counting = await openCounting();
  const { device, countRuns } = counting;
  const model = compileModel(gpt2({ ...CONFIG, layers: 4 }, 2), "none");
  const stages = await openStages(device, model, 1, { backward: "split", recomputeInterval: 10 });
  const [stage] = stages, [first, second] = BATCHES;
  const recompute = (m: number) => countRuns(() => stage!.recompute(m));
  await forward(stages, 0, first!);
  assert.equal(await recompute(0), 0, "F has left it there");
  await forward(stages, 1, second!);
  assert.equal(await recompute(0), 10);
  assert.equal(await recompute(0), 0);
  assert.equal(await countRuns(() => backward(stages, 0, "B")), 2 + 10);
  assert.equal(await recompute(1), 10);
  await forward(stages, 2, first!);
  assert.equal(await countRuns(() => backward(stages, 1, "B")), 10 + 2 + 10, "F of 2 came between");
  assert.equal(await recompute(2), 10);
  assert.equal(await countRuns(() => backward(stages, 2, "I")), 2 + 9);
  assert.equal(await countRuns(() => backward(stages, 2, "W")), 10, "W finds what I has used");
  await assert.rejects(stage!.recompute(2), /must have had its F here/);
});

Deno.test("an interval that is no positive integer is refused", async () => {
  const model = compileModel(gpt2(CONFIG, 2), "none");
  for (const recomputeInterval of [0, 1.5, -1]) {
    await withDevice("reference", async (device) => {
      await assert.rejects(openStages(device, model, 1, { recomputeInterval }), {
        name: "RangeError",
        message:
          `Cannot recompute activations: the interval must be a positive integer, received ${recomputeInterval}`,
      });
    });
  }
});
