import assert from "node:assert/strict";
import {
  ADAMW_DEFAULTS,
  batchCheck,
  compileModel,
  gpt2,
  llama,
  mlp,
  openReference,
  openStage,
  t5,
} from "../../../kernels/mod.ts";

Deno.test("a token or a target that is not in the vocabulary is refused, and one for none is not", async () => {
  const device = await openReference();
  try {
    const model = gpt2({ layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 5 }, 1);
    const stage = await openStage(device, compileModel(model, "none"), {
      backward: "whole",
      optimizer: ADAMW_DEFAULTS,
    });
    const ids = Int32Array.of(0, 4, 1, -1), targets = Int32Array.of(4, -1, 0, 0);
    await stage.forward(0, undefined, { ids, targets });
    for (const bad of [5, -6, 99_999]) {
      await assert.rejects(
        stage.forward(1, undefined, { ids: Int32Array.of(0, bad, 0, 0), targets }),
        {
          name: "RangeError",
          message:
            `Cannot run F: the field "ids" must hold whole numbers from -5 to 4, received ${bad} at position 1`,
        },
      );
    }
    for (const bad of [5, -2]) {
      await assert.rejects(
        stage.forward(1, undefined, { ids, targets: Int32Array.of(0, 0, 0, bad) }),
        /"targets" must hold whole numbers from -1 to 4, received (5|-2) at position 3$/,
      );
    }
    assert.equal(stage.liveActivations, 1);
  } finally {
    device.close();
  }
});

Deno.test("a token or a target of a field in another shape is refused, too", () => {
  const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 5 };
  for (const model of [t5(config, 1), llama(config, 1)]) {
    const check = batchCheck(compileModel(model, "none"));
    const ids = Int32Array.of(2, 4, 1, 0), targets = Int32Array.of(4, 2, 1, -1);
    assert.equal(check({ ids, targets }), undefined);
    assert.match(check({ ids: ids.with(1, 5), targets })!, /"ids" must .* -5 to 4, received 5/);
    assert.match(check({ ids, targets: targets.with(1, 5) })!, /"targets" .* -1 to 4, received 5/);
  }
});

Deno.test("a label that is no class is refused on every stage that reads it", async () => {
  const device = await openReference();
  try {
    const stage = await openStage(
      device,
      compileModel(mlp({ inputs: 4, hidden: 4, layers: 2, classes: 3 }, 2), "none"),
      { backward: "whole", optimizer: ADAMW_DEFAULTS },
    );
    const features = new Float32Array(8);
    await assert.rejects(
      stage.forward(0, undefined, { features, labels: Int32Array.of(0, 3) }),
      /"labels" must hold whole numbers from -1 to 2, received 3 at position 1$/,
    );
  } finally {
    device.close();
  }
});

Deno.test("a micro-batch whose F has failed is not in flight, and its memory serves the next one", async () => {
  const device = await openReference();
  try {
    const program = compileModel(mlp({ inputs: 4, hidden: 4, layers: 1, classes: 3 }, 2), "none");
    const stage = await openStage(device, program, {
      backward: "whole",
      optimizer: ADAMW_DEFAULTS,
    });
    const fields = { features: new Float32Array(8), labels: Int32Array.of(0, 2) };
    const read = device.read.bind(device);
    device.read = () => Promise.reject(new Error("broken"));
    await assert.rejects(stage.forward(0, undefined, fields), /broken/);
    device.read = read;
    await assert.rejects(
      stage.forward(0, undefined, { ...fields, features: new Float32Array(7) }),
      RangeError,
    );
    assert.equal(stage.liveActivations, 0);
    const held = device.allocatedBytes;
    await stage.forward(0, undefined, fields);
    assert.equal(stage.liveActivations, 1);
    assert.equal(device.allocatedBytes, held);
  } finally {
    device.close();
  }
});
