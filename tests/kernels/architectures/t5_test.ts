import assert from "node:assert/strict";
import {
  compileModel,
  openPredictor,
  openReference,
  t5,
  t5Bucket,
  type T5Config,
  t5Logits,
  t5Ties,
} from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { readT5, T5_VERSIONS } from "./t5_fixture.ts";
import { testT5Gradients } from "./t5_gradients.ts";

for (const device of ISOLATE_DEVICES) testT5Gradients(device);

for (const version of T5_VERSIONS) {
  Deno.test(`T5 ${version} has the parameters of Hugging Face's, by their names`, async () => {
    const { model, weights } = await readT5(version);
    const names = compileModel(model, "none").parameters.map(({ name }) => name);
    assert.deepEqual(names.toSorted(), [...weights.keys()].toSorted());
  });
}

Deno.test("equal layers of a T5 share a program, and only first blocks have a table of distances", () => {
  const config = { layers: 6, hidden: 16, heads: 2, seq: 8, vocab: 16 };
  const { layers, programs, parameters } = compileModel(t5(config, 1), "none");
  assert.equal(layers.length, 4 + 6 * 5);
  // The cross attention whose backward comes first writes what the others add to; so with positions.
  assert.equal(programs.length, 14);
  const tables = parameters.filter(({ name }) => name.includes("relative_attention_bias"));
  assert.deepEqual(tables.map(({ name }) => name), [
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
  ]);
});

Deno.test("distances are counted in the buckets of T5", () => {
  /** The first distance of each bucket, as PyTorch computes them. */
  const starts = (hasLater: boolean, sign: number) =>
    Array.from({ length: 301 }, (_, i) => i).filter((i) =>
      i === 0 ||
      t5Bucket(sign * i, hasLater, 32, 128) !== t5Bucket(sign * (i - 1), hasLater, 32, 128)
    );
  const near = (count: number) => Array.from({ length: count }, (_, i) => i);
  const far = [12, 16, 23, 32, 46, 64, 91];
  assert.deepEqual(starts(true, -1), [...near(9), ...far]);
  assert.deepEqual(starts(true, 1), [...near(9), ...far]);
  assert.equal(t5Bucket(300, true, 32, 128), 31);
  const causal = [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113];
  assert.deepEqual(starts(false, -1), [...near(17), ...causal]);
  assert.deepEqual(starts(false, 1), [0]);
});

/** Logits of one sample. */
async function logitsOf(config: T5Config, ids: number[], targets: number[]) {
  const { weights } = await readT5("v1_0"), device = await openReference();
  const sizes = { ...config, seq: ids.length, targetSeq: targets.length };
  const predict = await openPredictor(device, t5Logits(sizes, 1), weights, t5Ties(config));
  const logits = await predict({ ids: Int32Array.from(ids), targets: Int32Array.from(targets) });
  device.close();
  return Array.from(targets, (_, i) => logits.slice(i * config.vocab, (i + 1) * config.vocab));
}

Deno.test("what pads an input is attended to by nobody, and no output depends on a later one", async () => {
  const { config } = await readT5("v1_0"), ids = [5, 9, 30, 2, 1], targets = [4, 17, 3, 22];
  const whole = await logitsOf(config, ids, targets);
  assert.deepEqual(await logitsOf(config, [...ids, 0, 0, 0], targets), whole);
  assert.notDeepEqual(await logitsOf(config, [...ids, 3], targets), whole);
  const other = await logitsOf(config, ids, [4, 17, 8, -1]);
  assert.deepEqual(other.slice(0, 3), whole.slice(0, 3));
  assert.notDeepEqual(other[3], whole[3]);
});

Deno.test("a T5 that cannot be is refused", () => {
  const SIZES = { layers: 1, hidden: 24, heads: 3, seq: 8, vocab: 16 };
  for (
    const [sizes, told] of [
      [
        { heads: 5 },
        "hidden must be divisible by heads, 5, received 24",
      ],
      [{ targetSeq: 0 }, "seq must be a positive integer, received 0"],
      [
        { buckets: 6 },
        "buckets must be divisible by 4 and maxDistance above half of them, received 6 and 128",
      ],
      [
        { maxDistance: 16 },
        "buckets must be divisible by 4 and maxDistance above half of them, received 32 and 16",
      ],
      [{ layers: 2000 }, "layers must be at most 1024, received 2000"],
    ] as const
  ) {
    const message = `Cannot build T5: ${told}`;
    assert.throws(() => t5({ ...SIZES, ...sizes }, 1), { name: "RangeError", message });
  }
});
