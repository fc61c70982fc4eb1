/** Every model of a training has all its operations on the GPU; what has not is refused by name. */

import assert from "node:assert/strict";
import {
  chooseAdapters,
  webgpuAdapters,
} from "../../../../kernels/devices/webgpu/adapters/webgpu_adapters.ts";
import {
  compileModel,
  gpt2,
  Graph,
  nativeLibraryPath,
  openDevice,
} from "../../../../kernels/mod.ts";
import { enterGpu, leaveGpu } from "../../../../kernels/devices/webgpu/gpu_context.ts";
import { prepareModel } from "../../../../kernels/devices/webgpu/model/prepare_model.ts";
import type { Value } from "../../../../kernels/graph/value.ts";
import { gpuTest } from "../../../gpu.ts";
import { modelOf } from "../models.ts";
import { trainedModels } from "./trained_models.ts";

// A session is made strictly: a node without a kernel on the GPU, shapes not excepted, is an error.
gpuTest(
  "no node of a model that training a GPT-2, a Llama or an MLP compiles is left to the CPU",
  async () => {
    const models = await trainedModels();
    // So many rows that products and the sums of equal tokens are written in parts.
    for (
      const [vocab, precision] of [[20, "fp32"], [2000, "fp32"], [20, "fp16"], [
        2000,
        "fp16",
      ]] as const
    ) {
      const large = gpt2({ layers: 1, hidden: 8, heads: 1, seq: 1300, vocab }, 1);
      for (const { models: some } of compileModel(large, "none", { precision }).programs) {
        for (const [what, model] of Object.entries(some)) {
          models.set(`${precision} ${what} of many rows, model ${models.size}`, model);
        }
      }
    }
    assert.ok(models.size > 80, `${models.size} models`);
    const gpu = await enterGpu(
      await nativeLibraryPath(),
      chooseAdapters(await webgpuAdapters())[0],
    );
    try {
      for (const [what, model] of models) {
        const { bytes } = prepareModel(model);
        assert.doesNotThrow(() => gpu.releaseSession(gpu.createSession(bytes)), what);
      }
    } finally {
      leaveGpu();
    }
  },
);

async function assertRefused(build: (g: Graph, x: Value) => Value, message: RegExp) {
  const g = new Graph(), y = build(g, g.input("x", [4]));
  const device = await openDevice("webgpu");
  try {
    await assert.rejects(device.compile(modelOf(g, { y })), message);
    // The device is as good as before.
    (await device.compile(modelOf(g, { y: g.neg(g.inputs[0]!) }))).close();
  } finally {
    device.close();
  }
}

gpuTest(
  "an operation without a kernel on the GPU is refused with its name and its node's",
  async () => {
    const remainder = (g: Graph, x: Value) => {
      const [y] = g.node("Mod", [g.exp(x), x], [x.shape], { fmod: 1 });
      return g.add(y!, x);
    };
    await assertRefused(
      remainder,
      /^Error: Cannot compile the model for webgpu: .* received Mod \(node "Mod_1"\) without one; use .*[^.]$/,
    );
  },
);

gpuTest(
  "a model that stores FP16 is refused in one sentence by an adapter without shader-f16",
  async () => {
    await assertRefused(
      (g, x) => g.cast(g.cast(x, "f16"), "f32"),
      /^Error: Cannot compile the model for webgpu: .*FP16 \(shader-f16\), received SwiftShader.*; use precision fp32, or other adapters$/,
    );
  },
);
