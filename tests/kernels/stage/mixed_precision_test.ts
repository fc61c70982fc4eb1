/** Mixed precision: FP16 storage and messages, FP32 computing and master weights. */

import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  compileModel,
  cutIntoStages,
  type Device,
  type DeviceName,
  encodeModel,
  gpt2,
  Graph,
  openDevice,
  openReference,
  openStage,
  type OptimizerOptions,
  type Precision,
  type Recompute,
  type Stage,
  type StageOptions,
} from "../../../kernels/mod.ts";
import {
  assertSameBits,
  backward,
  compilingOnce,
  drawTokens,
  drawWeights,
  forward,
  gradientsOf,
  openStages,
  train,
} from "./stage_runs.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { preparing } from "../devices/webgpu/preparing.ts";

const CONFIG = { layers: 2, hidden: 32, heads: 2, seq: 16, vocab: 64 };
const SAMPLES = 2, PREDICTIONS = SAMPLES * CONFIG.seq;
const LOSS_SCALE = 1024;

/**
 * Devices with models as they are rewritten for a GPU: products take FP16 operands. What native has no
 * FP16 kernel for it computes in FP32, and leaves out roundings between: for bits ask the reference.
 */
const REWRITING = {
  "native as webgpu": "native",
  "reference as webgpu": "reference",
} as const;

type Place = DeviceName | keyof typeof REWRITING;

const isRewriting = (name: Place): name is keyof typeof REWRITING => name in REWRITING;

async function withDevice<R>(name: Place, use: (device: Device) => Promise<R>): Promise<R> {
  const device = isRewriting(name)
    ? preparing(await openDevice(REWRITING[name]))
    : await openDevice(name);
  try {
    return await use(compilingOnce(device));
  } finally {
    device.close();
  }
}

/** Eight micro-batches in which a token says which one follows: something to learn. */
function batchesToLearn() {
  return drawTokens(8, PREDICTIONS, CONFIG.vocab).map(({ ids }) => ({
    ids,
    targets: ids.map((id) => (5 * id + 1) % CONFIG.vocab),
  }));
}

/** Mean losses of optimizer steps of two micro-batches, which come again every fourth step. */
async function losses(stages: readonly Stage[], steps: number, lossScale: number) {
  const batches = batchesToLearn(), means: number[] = [];
  for (let step = 1; step <= steps; step++) {
    for (const stage of stages) stage.zeroGradients();
    let sum = 0;
    for (const m of [0, 1]) {
      const samples = await forward(stages, m, batches[(2 * step + m) % 8]!);
      sum += samples.reduce((total, loss) => total + loss, 0);
      await backward(stages, m, "B", lossScale / (2 * PREDICTIONS));
    }
    means.push(sum / (2 * PREDICTIONS));
    for (const stage of stages) {
      assert.ok(await stage.checkGradients(1));
      await stage.optimize(step, 3e-3, 1 / lossScale);
    }
  }
  return means;
}

function program(precision: Precision, policy: Recompute = "none") {
  return compileModel(gpt2(CONFIG, SAMPLES), policy, { precision });
}

for (const name of ["native", "wasm", "native as webgpu"] as const) {
  Deno.test(`50 steps in FP16 on ${name} have the losses of FP32 within 2e-3`, async () => {
    const run = (precision: Precision, scale: number) =>
      withDevice(
        name,
        async (device) => await losses(await openStages(device, program(precision), 1), 50, scale),
      );
    const expected = await run("fp32", 1), received = await run("fp16", LOSS_SCALE);
    assert.ok(expected.at(-1)! < expected[0]! / 3, `${expected} must fall`);
    const errors = received.map((loss, i) => Math.abs(loss / expected[i]! - 1));
    const largest = Math.max(...errors);
    assert.ok(largest < 2e-3, `losses differ by ${largest}`);
    assert.ok(largest > 1e-7, "FP16 must be used");
  });
}

const WAYS: readonly (readonly [Recompute, Partial<StageOptions>])[] = [
  ["none", { backward: "split" }],
  ["cheap", { backward: "whole" }],
  ["full", { backward: "split" }],
  ["full", { backward: "whole" }],
  ["none", { backward: "whole", recomputeInterval: 1 }],
  ["cheap", { backward: "split", recomputeInterval: 2 }],
];

for (const name of [...ISOLATE_DEVICES, "reference as webgpu"] as const) {
  Deno.test(`recomputation, the split into I and W and the cut into stages change no bit in FP16 on ${name}`, async () => {
    const batches = drawTokens(3, PREDICTIONS, CONFIG.vocab);
    await withDevice(name, async (device) => {
      const run = async (policy: Recompute, count: number, options = {}) => {
        const stages = await openStages(device, program("fp16", policy), count, options);
        const isSplit = "backward" in options && options.backward === "split";
        return await train(stages, batches, isSplit ? "split" : "whole");
      };
      const expected = await run("none", 1);
      for (
        const [i, [policy, options]]
          of (["wasm", "reference"].includes(name) ? WAYS.slice(1, 3) : WAYS)
            .entries()
      ) {
        const received = await run(policy, 1 + i % 4, options);
        assertSameBits(received, expected, `${policy}, ${JSON.stringify(options)}`);
      }
    });
  });

  Deno.test(`gradients in FP16 on ${name} are those of FP32 on the reference within 3e-3`, async () => {
    const [fields] = drawTokens(1, PREDICTIONS, CONFIG.vocab);
    const run = (device: Place, precision: Precision, scale: number) =>
      withDevice(device, async (opened) => {
        const stages = await openStages(opened, program(precision), 2);
        await forward(stages, 0, fields!);
        await backward(stages, 0, "B", scale / PREDICTIONS);
        return await gradientsOf(stages);
      });
    const received = await run(name, "fp16", LOSS_SCALE);
    for (const [parameter, wanted] of await run("reference", "fp32", 1)) {
      let difference = 0, norm = 0;
      wanted.forEach((value, i) => {
        difference += (received.get(parameter)![i]! / LOSS_SCALE - value) ** 2;
        norm += value ** 2;
      });
      const error = Math.sqrt(difference / norm);
      assert.ok(error < 3e-3, `the gradient of ${parameter} differs by ${error}`);
    }
  });

  Deno.test(`what a model stores on ${name} is rounded to FP16 for itself and for others`, async () => {
    await withDevice(name, async (device) => {
      const g = new Graph(), x = g.input("x", [4]), product = g.mul(x, g.scalar(1));
      const model = encodeModel(
        g,
        [{ name: "x", value: x }],
        [
          { name: "same", value: x },
          { name: "product", value: product },
          { name: "again", value: product },
          { name: "sum", value: g.add(product, g.scalar(0)) },
        ],
        new Set([product]),
      );
      const kernel = await device.compile(model);
      const values = Float32Array.of(1 + 2 ** -11, 1 + 3 * 2 ** -11, 2 ** -25, 65_520);
      const from = device.alloc("f32", [4]),
        tensors: Record<string, ReturnType<Device["alloc"]>> = {
          same: device.alloc("f32", [4]),
          product: device.alloc("f16", [4]),
          again: device.alloc("f16", [4]),
          sum: device.alloc("f32", [4]),
        };
      device.write(from, values);
      await kernel.bind({ x: from }, tensors)();
      const rounded = [1, 1 + 2 ** -9, 0, Infinity]; // ties to even
      for (const output of ["product", "again", "sum"]) {
        assert.deepEqual([...await device.read<Float16Array>(tensors[output]!)], rounded, output);
      }
      assert.deepEqual(await device.read<Float32Array>(tensors.same!), values);
    });
  });
}

Deno.test("in FP16, stages exchange FP16 and the last returns FP32 losses", async () => {
  await withDevice("native", async (device) => {
    const [first, last] = await openStages(device, program("fp16"), 2);
    const [fields] = drawTokens(1, PREDICTIONS, CONFIG.vocab);
    const { output } = await first!.forward(0, undefined, fields!);
    assert.ok(output instanceof Float16Array);
    assert.equal(output.length, PREDICTIONS * CONFIG.hidden);
    const reused = new Float32Array(SAMPLES);
    const losses = await last!.forward(0, output, fields!, reused);
    assert.equal(losses.output, reused);
    const into = new Float16Array(output.length);
    assert.equal(await last!.backward(0, "B", undefined, 1, into), into);
    assert.equal(await first!.backward(0, "B", into, 1), undefined);
    assert.ok(into.some((value) => value !== 0));
    const sum = await first!.readGradients(0, 32);
    assert.ok(sum instanceof Float16Array);
    first!.writeGradients(16, sum.subarray(0, 16));
    assert.deepEqual(await first!.readGradients(16, 16), sum.slice(0, 16));
  });
});

Deno.test("each micro-batch's gradient is added in FP32 and the sum rounded to FP16", async () => {
  const linear = {
    name: "linear",
    build: (g: Parameters<ReturnType<typeof gpt2>["layers"][number]["build"]>[0]) =>
      g.sum(g.mul(g.batch("x", [1, 1]), g.parameter("w", [1, 1])), [1]),
  };
  const model = { name: "tiny", layers: [linear], predictions: 1 };
  const device = await openReference();
  const stage = await openStage(device, compileModel(model, "none", { precision: "fp16" }), {
    optimizer: ADAMW_DEFAULTS,
    backward: "whole",
  });
  stage.load({ weights: new Map([["linear.w", Float32Array.of(1)]]), moments: new Map() });
  // 2048 + 1 is no FP16 number, and rounds to 2048; 2048 + 3 rounds to 2052.
  for (const [m, [gradient, sum]] of [[2048, 2048], [1, 2048], [3, 2052]].entries()) {
    await stage.forward(m, undefined, { x: Float32Array.of(gradient!) });
    await stage.backward(m, "B", undefined, 1);
    assert.deepEqual((await stage.gradients()).get("linear.w"), Float32Array.of(sum!));
  }
  device.close();
});

const OPTIMIZERS: readonly OptimizerOptions[] = [
  ADAMW_DEFAULTS,
  { kind: "sgd", momentum: 0.9, weightDecay: 0.1 },
];

for (const optimizer of OPTIMIZERS) {
  Deno.test(`a saved FP16 stage goes on with the same bits under ${optimizer.kind}`, async () => {
    await withDevice("native", async (device) => {
      const model = program("fp16"), [stage] = await openStages(device, model, 1, { optimizer });
      assertSameBits(
        new Map((await stage!.save()).weights),
        drawWeights(model),
        "weights before a step",
      );
      await losses([stage!], 2, LOSS_SCALE);
      const [other] = await openStages(device, model, 1, { optimizer });
      const state = await stage!.save();
      assert.ok(
        [...state.weights.values()].flatMap((w) => [...w]).some((w) => w !== Math.f16round(w)),
      );
      other!.load(state);
      const [expected, received] = await Promise.all(
        [stage!, other!].map((one) => losses([one], 2, LOSS_SCALE)),
      );
      assert.deepEqual(received, expected);
      const [left, right] = await Promise.all([stage!.save(), other!.save()]);
      assertSameBits(new Map(right.weights), new Map(left.weights), "weights");
      assertSameBits(new Map(right.moments), new Map(left.moments), "moments");
    });
  });
}

Deno.test("small updates reach the FP32 weights although they vanish in FP16", async () => {
  const optimizer = { kind: "sgd", momentum: 0, weightDecay: 0 } as const;
  await withDevice("native", async (device) => {
    const [stage] = await openStages(device, program("fp16"), 1, { optimizer });
    const { offset, length } = stage!.rangeOf("lm_head.weight");
    const before = (await stage!.save()).weights.get("lm_head.weight")!;
    stage!.writeGradients(offset, new Float16Array(length).fill(2));
    await stage!.optimize(1, 1e-6, 1 / 2);
    const after = (await stage!.save()).weights.get("lm_head.weight")!;
    assert.deepEqual(after, before.map((weight) => Math.fround(weight - Math.fround(1e-6))));
  });
});

Deno.test("a precision that does not exist is refused", () => {
  assert.throws(() => program("bf16" as Precision), {
    name: "RangeError",
    message: /must be fp32 or fp16, received bf16/,
  });
});

Deno.test("a precision that is not the program's is refused", async () => {
  const device = await openReference();
  const [stage] = cutIntoStages(program("fp16"), 2);
  await assert.rejects(
    openStage(device, stage!, { optimizer: ADAMW_DEFAULTS, backward: "whole", precision: "fp32" }),
    { name: "TypeError", message: /that of its program, fp16, received fp32/ },
  );
  device.close();
});
