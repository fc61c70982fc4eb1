import assert from "node:assert/strict";
import { join } from "node:path";
import {
  compileModel,
  encodeSafetensors,
  gpt2,
  type SafetensorsTensor,
} from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { initialValues } from "../../../kernels/layers/layer.ts";
import { folderTest } from "../../in_folder.ts";
import {
  bitsOf,
  refusal,
  refuses,
  someTokens,
  TINY,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { assertSentences } from "../refusals.ts";

/** `--weights` and `--tokens`: the user's files. */

/** Tokens that a step of TINY reads: 2 micro-batches of 2 rows of 8. */
const STEP = 32;

const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 256 };
type Tensors = ReadonlyMap<string, SafetensorsTensor>;

/** The initial weights of seed 1, as tensors under the names of Hugging Face. */
function drawnWeights(): Map<string, SafetensorsTensor> {
  const { parameters } = compileModel(gpt2(CONFIG, 1), "none");
  const drawn = parameters.map(({ name, spec }): [string, SafetensorsTensor] => {
    return [name, { dtype: "F32", shape: spec.shape, data: initialValues(spec, name, 1) }];
  });
  return new Map(drawn);
}

const tensor = (shape: number[], dtype: SafetensorsTensor["dtype"] = "F32"): SafetensorsTensor => {
  const bytes = { F32: 4, F64: 8, U8: 1 }[dtype as "F32" | "F64" | "U8"];
  return { dtype, shape, data: new Uint8Array(elementCount(shape) * bytes) };
};

/** Tensors by name; `undefined` removes a tensor. */
type Changes = Readonly<Record<string, SafetensorsTensor | undefined>>;

/** The file's tensors with some of them changed. */
function changed(changes: Changes): Tensors {
  const entries = Object.entries({ ...Object.fromEntries(drawnWeights()), ...changes });
  return new Map(entries.filter((one): one is [string, SafetensorsTensor] => one[1] !== undefined));
}

folderTest("weights from a file of GPT-2 train like the same weights in memory", async (folder) => {
  const train = [...TINY, "--tokens", await writeTokens(folder, someTokens(100)), "--steps", "2"];
  const drawn = drawnWeights(), positions = "transformer.wpe.weight";
  const more = new Float32Array(32 * 16).fill(7);
  more.set(drawn.get(positions)!.data as Float32Array);
  const files: Readonly<Record<string, Tensors>> = {
    "with the prefix": drawn,
    "without the prefix, with the buffers": new Map([
      ...[...drawn].map(([name, one]) => [name.replace("transformer.", ""), one] as const),
      ["h.0.attn.bias", tensor([1, 1, 8, 8], "U8")],
      ["h.0.attn.masked_bias", tensor([])],
    ]),
    "with the prefix, the buffer, and more positions": changed({
      [positions]: { dtype: "F32", shape: [32, 16], data: more },
      "transformer.h.0.attn.bias": tensor([1, 1, 32, 32]),
    }),
  };
  const expected = bitsOf((await trainHere(train)).lines);
  const otherSeed = [...train, "--seed", "2"];
  assert.notDeepEqual(bitsOf((await trainHere(otherSeed)).lines), expected);
  for (const [name, tensors] of Object.entries(files)) {
    const path = join(folder, "weights.safetensors");
    await Deno.writeFile(path, encodeSafetensors(tensors));
    const run = await trainHere([...otherSeed, "--weights", path]);
    assert.deepEqual(bitsOf(run.lines), expected, name);
  }
});

/** Tensors that are not those of the model. */
const STRANGE: Readonly<Record<string, Changes>> = {
  "no head": { "lm_head.weight": undefined },
  "no bias": { "transformer.h.0.ln_1.bias": undefined },
  "another block": { "transformer.h.1.ln_1.bias": tensor([16]) },
  "more tokens": { "transformer.wte.weight": tensor([300, 16]) },
  "fewer positions": { "transformer.wpe.weight": tensor([4, 16]) },
  "a transposed matrix": { "transformer.h.0.attn.c_attn.weight": tensor([48, 16]) },
  "doubles": { "lm_head.weight": tensor([256, 16], "F64") },
};

folderTest("a file with other weights, truncated or mislabelled is refused", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100));
  const whole = encodeSafetensors(drawnWeights());
  const mislabelled = new TextDecoder("latin1").decode(whole).replace("[16,48]", "[16,47]");
  const files: Record<string, Uint8Array> = {
    ...Object.fromEntries(
      Object.entries(STRANGE).map(([about, one]) => [about, encodeSafetensors(changed(one))]),
    ),
    "all but 4 bytes": whole.subarray(0, -4),
    "100 bytes": whole.subarray(0, 100),
    "5 bytes": whole.subarray(0, 5),
    "another shape in the header": Uint8Array.from(mislabelled, (one) => one.charCodeAt(0)),
    "another format": new TextEncoder().encode("PK\x03\x04 a zip file of PyTorch's"),
  };
  const path = join(folder, "weights.safetensors"), found: [string, string][] = [];
  for (const [about, bytes] of Object.entries(files)) {
    await Deno.writeFile(path, bytes);
    const flags = words`${TINY} --tokens ${tokens} --steps 1 --weights ${path}`;
    found.push([about, await refusal(flags)]);
  }
  await assertSentences("strange_weights", found, { FOLDER: folder });
});

folderTest("tokens that cannot be used are refused with the reason", async (folder) => {
  const found: [string, string][] = [];
  const refuse = async (tokens: number[], flags: string) => {
    const path = await writeTokens(folder, tokens);
    const about = `${tokens.length} tokens ${flags}`;
    found.push([about, await refusal(words`${TINY} --tokens ${path} ${flags.split(" ")}`)]);
  };
  for (const count of [0, 16]) await refuse(someTokens(count), "--steps 1");
  // A step reads 2 · 2 rows of 8 tokens and one more token for the last prediction. The last
  // step may have one micro-batch.
  await refuse(someTokens(80), "--steps 3");
  await refuse(someTokens(97).with(90, 256), "--steps 3");
  await refuse([3, 99, 100, 5, ...someTokens(30, 9)], "--steps 1 --vocab 100");
  for (const position of [3, 4 * STEP]) {
    await refuse(someTokens(5 * STEP + 1, 96).with(position, 96), "--vocab 96 --steps 2");
  }
  await assertSentences("strange_tokens", found, { FOLDER: folder });
});

folderTest("the fewest tokens that suffice train, read in order of the file", async (folder) => {
  const tokens = someTokens(97, 2000);
  const path = await writeTokens(folder, tokens),
    longer = await writeTokens(folder, [...tokens, 1, 2], "b");
  const train = [...TINY, "--vocab", "2000", "--steps", "3"];
  const { lines, last } = await trainHere([...train, "--tokens", path]);
  assert.equal(last.steps, 3);
  const other = await trainHere([...train, "--tokens", longer]);
  assert.deepEqual(bitsOf(other.lines), bitsOf(lines));
});

folderTest("ids of 32 bits and links train as ids of 16, and resume by hash", async (folder) => {
  const ids = someTokens(5 * STEP + 2), tokens = await writeTokens(folder, ids);
  const [wide, link, out, renamed] = ["ids.u32", "link.bin", "out", "renamed.u32"]
    .map((name) => join(folder, name)) as [string, string, string, string];
  await Deno.writeFile(wide, new Uint8Array(Uint32Array.from(ids).buffer));
  await Deno.symlink(tokens, link);
  const { last } = await trainHere([...TINY, "--tokens", tokens, "--steps", "4"]);
  for (const path of [wide, link]) {
    const same = await trainHere([...TINY, "--tokens", path, "--steps", "4"]);
    assert.equal(same.last.weightsHash, last.weightsHash, path);
  }
  await trainHere([...TINY, "--tokens", tokens, "--steps", "2", "--out", out]);
  const resume = words`--resume ${out} --steps 4 --device reference --tokens`;
  assert.equal((await trainHere([...resume, link])).last.weightsHash, last.weightsHash);
  await Deno.copyFile(tokens, renamed);
  const narrow = /--tokens must name ids of 16 bits, .*received ".*renamed\.u32"$/;
  await refuses([...resume, renamed], narrow);
});
