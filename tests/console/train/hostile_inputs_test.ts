/** Files that would take all memory, or never end: refused before anything is allocated. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { encodeSafetensors, readSafetensors } from "../../../kernels/mod.ts";
import { inFolder, refusal, runTroupe, TINY } from "../command.ts";

/** What a file can be beside what was asked for. */
async function hostileFiles(folder: string): Promise<Readonly<Record<string, string>>> {
  const path = (name: string) => join(folder, name);
  await new Deno.Command("mkfifo", { args: [path("pipe.csv")] }).output();
  const sparse = await Deno.create(path("sparse.csv"));
  await sparse.truncate(20 * 2 ** 30);
  sparse.close();
  await Deno.writeFile(path("binary.csv"), Uint8Array.from({ length: 500 }, (_, i) => i * 37));
  await Deno.writeFile(path("latin.csv"), Uint8Array.of(0x64, 0xe9, 0x6a, 0xe0));
  await Deno.writeTextFile(path("rows.csv"), "\n".repeat(1e6) + "x");
  await Deno.writeTextFile(path("escape.csv"), "0F0,\u001b[2J\u0007\n");
  return {
    pipe: path("pipe.csv"),
    device: "/dev/zero",
    sparse: path("sparse.csv"),
    binary: path("binary.csv"),
    latin: path("latin.csv"),
    rows: path("rows.csv"),
    escape: path("escape.csv"),
  };
}

Deno.test({
  name:
    "pipes, devices, sparse and binary files are refused in one sentence, wherever they are named",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
      const files = await hostileFiles(folder);
      const accepted = new Set(["text rows", "text escape"]); // texts they are
      for (const [kind, path] of Object.entries(files)) {
        for (const flag of ["text", "tokens", "schedule-file", "weights"]) {
          // Tokens may be any bytes, and more than memory holds.
          const isTokens = flag === "tokens" && !["pipe", "device"].includes(kind);
          if (isTokens || accepted.has(`${flag} ${kind}`)) continue;
          const said = await refusal([...TINY, `--${flag}`, path]);
          assert.match(said, /^Cannot \P{Cc}+$/u, `${flag} ${kind}`);
        }
      }
      assert.match(
        await refusal([...TINY, "--journal", files.pipe!, "--data", "moby-dick"]),
        /^Cannot write a journal to .*pipe.csv: it must be a file that can be written/,
      );
      const commands = [
        ...["pipe", "binary", "rows", "escape"].map((kind) => ["schedule", files[kind]!]),
        ...["pipe", "sparse"].flatMap((
          kind,
        ) => [["replay", files[kind]!], ["journal", "show", files[kind]!]]),
        ["schedule", "1f1b\u001b[2J"],
        ["schedule", "1f1b", "--workers", "1e1", "--micro-batches", "4"],
        ["schedule", "1f1b", "--workers", "1048577", "--micro-batches", "1"],
        ["schedule", "chimera", "--workers", "8192", "--micro-batches", "8", "--pipelines", "4096"],
        ["schedule", "1f1b", "--workers", "1", "--micro-batches", "2147483647"],
        ["schedule", "1f1b", "--workers", "2", "--micro-batches", "99999999999"],
        ["train\u001b[2J\n"],
        ["train", "--schedule", "a\nb\u009b"],
        ["generate", "--from", "\u001b[2J"],
      ];
      for (const command of commands) {
        const { code, stdout, stderr } = await runTroupe(command);
        assert.deepEqual([code, stdout], [2, ""], `${JSON.stringify(command)}: ${stderr}`);
        assert.match(stderr, /^Cannot \P{Cc}+\n$/u, JSON.stringify(command));
      }
    }),
});

/** A safetensors file with a header of one's own. */
function withHeader(header: string): Uint8Array {
  const json = new TextEncoder().encode(header), file = new Uint8Array(8 + json.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
  file.set(json, 8);
  return file;
}

Deno.test("headers with a name twice, too many tensors, or of too many bytes are refused", () =>
  inFolder(async (folder) => {
    const path = join(folder, "x.safetensors");
    const empty = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}';
    const read = async (content: Uint8Array) => {
      await Deno.writeFile(path, content);
      return await readSafetensors(path).then(({ tensors }) => tensors.size);
    };
    assert.equal(await read(withHeader(`{"a":${empty},"b":${empty}}`)), 2);
    await assert.rejects(read(withHeader(`{"a":${empty},"b":${empty},"\\u0061":${empty}}`)), {
      name: "SyntaxError",
      message: `Cannot read ${path}: the names of its header must be unique, received "a" twice`,
    });
    await assert.rejects(
      read(withHeader('{"a":{"dtype":"F32","shape":[0],"shape":[0],"data_offsets":[0,0]}}')),
      /must be unique, received "shape" twice/,
    );
    const many = Array.from({ length: 1_000_000 }, (_, i) => `"${i}":${empty}`);
    await assert.rejects(read(withHeader(`{${many.join(",")}}`)), {
      name: "RangeError",
      message: `Cannot read ${path}: it must have at most 100000 tensors, received 1000000`,
    });
    // A sparse file: the length alone decides, and nothing of that size is allocated.
    const whole = encodeSafetensors(new Map());
    for (
      const [bytes, reason] of [[100_000_000, /must be JSON/], [
        100_000_001,
        /at most 1000/,
      ]] as const
    ) {
      new DataView(whole.buffer).setBigUint64(0, BigInt(bytes), true);
      await Deno.writeFile(path, whole);
      await Deno.truncate(path, 200_000_000);
      await assert.rejects(readSafetensors(path), reason);
    }
  }));
