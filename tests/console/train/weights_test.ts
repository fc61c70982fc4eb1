import assert from "node:assert/strict";
import { join } from "node:path";
import { train } from "../../../actors/mod.ts";
import {
  compileModel,
  elementCount,
  encodeSafetensors,
  gpt2,
  initialValues,
  openTokenFile,
  type SafetensorsTensor,
  tokenBatches,
} from "../../../kernels/mod.ts";
import { folderTest } from "../../in_folder.ts";
import {
  bitsOf,
  inFolder,
  refusal,
  savedIn,
  someTokens,
  TINY,
  trainHere,
  writeTokens,
} from "../command.ts";

/** `--weights` and `--tokens`: files of one's own. */

const CONFIG = { layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 256 };
type Tensors = ReadonlyMap<string, SafetensorsTensor>;

/** The weights that seed 1 draws, as a file's tensors under Hugging Face's names. */
function drawnWeights(): Map<string, SafetensorsTensor> {
  const { parameters } = compileModel(gpt2(CONFIG, 1), "none");
  return new Map(
    parameters.map(({ name, spec }) => [
      name,
      { dtype: "F32", shape: spec.shape, data: initialValues(spec, name, 1) },
    ]),
  );
}

const tensor = (shape: number[], dtype: SafetensorsTensor["dtype"] = "F32"): SafetensorsTensor => {
  const bytes = { F32: 4, F64: 8, U8: 1 }[dtype as "F32" | "F64" | "U8"];
  return { dtype, shape, data: new Uint8Array(elementCount(shape) * bytes) };
};

/** The file's tensors with some of them changed; `undefined` takes one away. */
function changed(changes: Readonly<Record<string, SafetensorsTensor | undefined>>): Tensors {
  const tensors = drawnWeights();
  for (const [name, value] of Object.entries(changes)) {
    if (value) tensors.set(name, value);
    else tensors.delete(name);
  }
  return tensors;
}

async function writeFile(folder: string, tensors: Tensors, bytes?: number): Promise<string> {
  const path = join(folder, `${crypto.randomUUID()}.safetensors`);
  await Deno.writeFile(path, encodeSafetensors(tensors).subarray(0, bytes));
  return path;
}

Deno.test("a file of GPT-2's weights trains like the weights themselves, as Hugging Face writes it", () =>
  inFolder(async (folder) => {
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
      const path = await writeFile(folder, tensors);
      const run = await trainHere([...otherSeed, "--weights", path]);
      assert.deepEqual(bitsOf(run.lines), expected, name);
    }
  }));

Deno.test("a file that does not hold the model's weights is refused with the reason", () =>
  inFolder(async (folder) => {
    const train = [...TINY, "--tokens", await writeTokens(folder, someTokens(100)), "--steps", "1"];
    const refused = async (path: string) => await refusal([...train, "--weights", path]);
    const cases: readonly [Tensors, RegExp][] = [
      [
        changed({ "lm_head.weight": undefined }),
        /must hold "lm_head.weight"; is it of a model with tied embeddings \(--tie\)\?/,
      ],
      [
        changed({ "transformer.h.0.ln_1.bias": undefined }),
        /must hold "transformer.h.0.ln_1.bias"$/,
      ],
      [
        changed({ "transformer.h.1.ln_1.bias": tensor([16]) }),
        /received "transformer.h.1.ln_1.bias"; is it a file of another model/,
      ],
      [
        changed({ "transformer.wte.weight": tensor([300, 16]) }),
        /"transformer.wte.weight" must have shape \[256,16\], received \[300,16\]/,
      ],
      [
        changed({ "transformer.wpe.weight": tensor([4, 16]) }),
        /"transformer.wpe.weight" must have shape \[8,16\], received \[4,16\]/,
      ],
      [
        changed({ "transformer.h.0.attn.c_attn.weight": tensor([48, 16]) }),
        /c_attn.weight" must have shape \[16,48\], received \[48,16\]/,
      ],
      [
        changed({ "lm_head.weight": tensor([256, 16], "F64") }),
        /"lm_head.weight" must have dtype F32, F16 or BF16, received F64; convert the file/,
      ],
    ];
    for (const [tensors, reason] of cases) {
      assert.match(await refused(await writeFile(folder, tensors)), reason);
    }
  }));

Deno.test("a truncated or mislabelled file is refused with the reason", () =>
  inFolder(async (folder) => {
    const train = [...TINY, "--tokens", await writeTokens(folder, someTokens(100)), "--steps", "1"];
    const whole = encodeSafetensors(drawnWeights());
    const mislabelled = new TextDecoder("latin1").decode(whole).replace("[16,48]", "[16,47]");
    const cases: readonly [Uint8Array, RegExp][] = [
      [
        whole.subarray(0, -4),
        /must hold 46528 bytes of tensors, received 46524, so it is truncated/,
      ],
      [
        whole.subarray(0, 100),
        /the header must be at most 92 bytes, received a header length of \d+/,
      ],
      [whole.subarray(0, 5), /must start with an 8-byte header length, received 5 bytes in all/],
      [
        Uint8Array.from(mislabelled, (character) => character.charCodeAt(0)),
        /c_attn.weight.*F32 of shape \[16, 47\] must be 3008 bytes, .* of 3072 bytes/,
      ],
      [
        new TextEncoder().encode("PK\x03\x04 a zip file of PyTorch's"),
        /the header must be at most /,
      ],
    ];
    for (const [bytes, reason] of cases) {
      const path = join(folder, "weights.safetensors");
      await Deno.writeFile(path, bytes);
      assert.match(await refusal([...train, "--weights", path]), reason);
    }
  }));

Deno.test("tokens that cannot be used are refused with the reason", () =>
  inFolder(async (folder) => {
    const refused = async (tokens: Iterable<number>, ...args: string[]) =>
      await refusal([...TINY, "--tokens", await writeTokens(folder, tokens), ...args]);
    // A step reads 2 · 2 rows of 8 tokens, and the last row predicts one more; of the last step
    // one micro-batch is enough.
    assert.match(
      await refused(someTokens(80), "--steps", "3"),
      /the run needs at least 81 tokens, received 80/,
    );
    const tokens = someTokens(97);
    tokens[90] = 256;
    assert.match(
      await refused(tokens, "--steps", "3"),
      /from 0 to 255 \(the vocabulary has 256\), received 256 at position 90/,
    );
    assert.match(
      await refused([3, 99, 100, 5, ...someTokens(30, 9)], "--steps", "1", "--vocab", "100"),
      /received 100 at position 2/,
    );
    const odd = join(folder, "odd.bin");
    await Deno.writeFile(odd, new Uint8Array(99));
    assert.match(
      await refusal([...TINY, "--tokens", odd]),
      /its size must be even \(16-bit tokens\), received 99 bytes/,
    );
  }));

Deno.test("tokens that are just enough train, and are read as they lie", () =>
  inFolder(async (folder) => {
    const tokens = someTokens(97, 2000);
    const path = await writeTokens(folder, tokens),
      longer = await writeTokens(folder, [...tokens, 1, 2], "b");
    const train = [...TINY, "--vocab", "2000", "--steps", "3"];
    const { lines, last } = await trainHere([...train, "--tokens", path]);
    assert.equal(last.steps, 3);
    const other = await trainHere([...train, "--tokens", longer]);
    assert.deepEqual(bitsOf(other.lines), bitsOf(lines));
  }));

/** `--tokens`: files of any size, read as the run goes on, and never another file than was named. */

/** Tokens that a step of TINY reads: 2 micro-batches of 2 rows of 8. */
const STEP = 32;

folderTest(
  "an id that is not in the vocabulary is told at the door, wherever it is",
  async (folder) => {
    const flags = [...TINY, "--vocab", "96", "--steps", "2"];
    for (const position of [3, 4 * STEP]) {
      const ids = someTokens(5 * STEP + 1, 96);
      ids[position] = 96;
      assert.equal(
        await refusal([...flags, "--tokens", await writeTokens(folder, ids)]),
        "Cannot use these tokens: each must be from 0 to 95 " +
          `(the vocabulary has 96), received 96 at position ${position}`,
      );
    }
  },
);

folderTest(
  "a file that is cut short while a run reads it ends the run in its step; the last checkpoint stays",
  async (folder) => {
    const path = await writeTokens(folder, someTokens(5 * STEP + 1, 96)), out = join(folder, "out");
    const cut = { seq: 8, vocabularySize: 96, microBatch: 2, microBatches: 2 };
    const run = async () => {
      for await (
        const event of train({
          model: gpt2({ layers: 1, hidden: 16, heads: 2, seq: 8, vocab: 96 }, 2),
          data: tokenBatches({ ...cut, tokens: await openTokenFile(path) }),
          steps: 5,
          microBatches: 2,
          device: "reference",
          checkpoint: { directory: out, every: 1, config: {} },
        })
      ) {
        if (event.type === "step" && event.step === 2) await Deno.truncate(path, 100);
      }
    };
    await assert.rejects(run(), {
      name: "TypeError",
      message:
        `Cannot make micro-batch 0 of step 3: cannot read ${path}: it must stay as it was when ` +
        `the run began, received 100 bytes in place of ${2 * (5 * STEP + 1)}`,
    });
    assert.deepEqual(await savedIn(out), ["step-00000001", "step-00000002"]);
  },
);

folderTest(
  "ids of 32 bits train as those of 16, a link as its file, and a run goes on by the file's hash",
  async (folder) => {
    const ids = someTokens(5 * STEP + 2), tokens = await writeTokens(folder, ids);
    const wide = join(folder, "ids.u32"),
      link = join(folder, "link.bin"),
      out = join(folder, "out");
    await Deno.writeFile(wide, new Uint8Array(Uint32Array.from(ids).buffer));
    await Deno.symlink(tokens, link);
    const { last } = await trainHere([...TINY, "--tokens", tokens, "--steps", "4"]);
    for (const path of [wide, link]) {
      const same = await trainHere([...TINY, "--tokens", path, "--steps", "4"]);
      assert.equal(same.last.weightsHash, last.weightsHash, path);
    }
    await trainHere([...TINY, "--tokens", tokens, "--steps", "2", "--out", out]);
    const on = await trainHere([
      "--resume",
      out,
      "--tokens",
      link,
      "--steps",
      "4",
      "--device",
      "reference",
    ]);
    assert.equal(on.last.weightsHash, last.weightsHash);
    const renamed = join(folder, "renamed.u32");
    await Deno.copyFile(tokens, renamed);
    assert.match(
      await refusal(["--resume", out, "--tokens", renamed, "--steps", "4"]),
      /--tokens must name ids of 16 bits, .*received ".*renamed\.u32"$/,
    );
    ids[5 * STEP]!++;
    const other = await writeTokens(folder, ids, "other.bin");
    assert.match(
      await refusal(["--resume", out, "--tokens", other, "--steps", "4"]),
      /--tokens must name the file that its run read, with SHA-256 [0-9a-f]{64}, received /,
    );
  },
);

folderTest(
  "what holds too few tokens for a step is refused by how many it needs",
  async (folder) => {
    for (
      const [count, told] of [[0, /at least 17 tokens, received 0$/], [16, /received 16$/]] as const
    ) {
      const tokens = await writeTokens(folder, someTokens(count));
      assert.match(await refusal([...TINY, "--tokens", tokens, "--steps", "1"]), told);
    }
  },
);
