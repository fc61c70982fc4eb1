/** Bad input is refused in one sentence before anything is written. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  refusal,
  refusedHere,
  refuses,
  ROOT,
  someTokens,
  TINY,
  TINY_MODEL,
  writeTokens,
} from "../command.ts";
import { assertRefusals } from "../refusals.ts";

folderTest("each bad flag is refused in one sentence, and nothing is written", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
  const train = [...TINY, "--tokens", tokens, "--steps", "1", "--out", out];
  const refuse = (words: string[]) => refusal([...train, ...words]);
  await assertRefusals("train_flags", refuse, { FOLDER: folder, "ROOT/": ROOT });
  assert.deepEqual(await namesIn(folder), ["tokens.bin"]);
});

folderTest("sizes are bounded before anything is allocated", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(3000));
  const train = [...TINY, "--tokens", tokens, "--steps", "1"];
  const before = Deno.memoryUsage().external;
  await assertRefusals("train_sizes", (words) => refusal([...train, ...words]));
  const external = Deno.memoryUsage().external - before;
  assert.ok(external < 2 ** 26, `${external} bytes`);
});

folderTest("flags of evaluations are refused if the run has none", async (folder) => {
  const text = join(folder, "a.txt"), train = [...TINY, "--text", text, "--json"];
  await Deno.writeTextFile(text, "In the beginning was the word. ".repeat(80));
  await assertRefusals("train_evaluations", (words) => refusal([...train, ...words]), {
    FOLDER: folder,
  });
  const tokens = await writeTokens(folder, someTokens(33));
  const few = /there must be at least 2 held-out rows of 8 tokens, received 0/;
  await refuses([...TINY, "--tokens", tokens, "--steps", "1", "--eval-every", "1"], few);
});

folderTest("files that cannot be read or written are refused by flag", async (folder) => {
  await writeTokens(folder, someTokens(3000));
  await Deno.symlink(join(folder, "nowhere"), join(folder, "link"));
  await Deno.symlink(join(folder, "tokens.bin"), join(folder, "same"));
  await Deno.writeTextFile(join(folder, "empty.txt"), "");
  await Deno.writeFile(join(folder, "odd.bin"), new Uint8Array(99));
  for (const [name, lengths] of Object.entries({ sum: [8], zero: [0, 3000], long: [8, 2992] })) {
    const bytes = new Uint8Array(Uint32Array.from(lengths).buffer);
    await Deno.writeFile(join(folder, `${name}.u32`), bytes);
  }
  const refuse = (words: string[]) => refusal([...TINY, "--steps", "1", ...words]);
  await assertRefusals("train_files", refuse, { FOLDER: folder });
});

folderTest("lists that cannot run, and flags that do not fit them, are refused", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(3000)), file = join(folder, "mine.csv");
  const train = [...TINY_MODEL, "--tokens", tokens, "--schedule-file", file];
  // A row of lists for each worker, separated by /.
  await assertRefusals("train_lists", async ([rows = ""]) => {
    await Deno.writeTextFile(file, rows.replaceAll("/", "\n"));
    return await refusal(train);
  }, { FOLDER: folder });
  await Deno.writeTextFile(file, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
  const refuse = (words: string[]) => refusal([...train, ...words]);
  await assertRefusals("train_lists_flags", refuse, { FOLDER: folder });
});

/** Files that are not text, or too long. */
async function hostileFiles(folder: string): Promise<Readonly<Record<string, string>>> {
  const path = (name: string) => join(folder, `${name}.csv`);
  await new Deno.Command("mkfifo", { args: [path("pipe")] }).output();
  using sparse = await Deno.create(path("sparse"));
  await sparse.truncate(20 * 2 ** 30);
  await Deno.writeFile(path("binary"), Uint8Array.from({ length: 500 }, (_, i) => i * 37));
  await Deno.writeFile(path("latin"), Uint8Array.of(0x64, 0xe9, 0x6a, 0xe0));
  await Deno.writeTextFile(path("rows"), "\n".repeat(1e6) + "x");
  await Deno.writeTextFile(path("escape"), "0F0,\u001b[2J\u0007\n");
  const names = ["pipe", "sparse", "binary", "latin", "rows", "escape"];
  return { device: "/dev/zero", ...Object.fromEntries(names.map((name) => [name, path(name)])) };
}

folderTest("pipes, devices, sparse files and binary files are refused", async (folder) => {
  const files = await hostileFiles(folder), accepted = new Set(["text rows", "text escape"]);
  for (const [kind, path] of Object.entries(files)) {
    for (const flag of ["text", "tokens", "schedule-file", "weights"]) {
      // Tokens may be any bytes, and larger than memory.
      const isTokens = flag === "tokens" && !["pipe", "device"].includes(kind);
      if (isTokens || accepted.has(`${flag} ${kind}`)) continue;
      await refuses([...TINY, `--${flag}`, path], /^Cannot \P{Cc}+$/u);
    }
  }
  const commands = [
    ...["pipe", "binary", "rows", "escape"].map((kind) => ["schedule", files[kind]!]),
    ...["pipe", "sparse"].flatMap((kind) => [
      ["replay", files[kind]!],
      ["journal", "show", files[kind]!],
    ]),
    ["schedule", "1f1b\u001b[2J"],
    ["train\u001b[2J\n"],
    ["train", "--schedule", "a\nb\u009b"],
    ["train", ...TINY, "--journal", files.pipe!, "--data", "moby-dick"],
    ["generate", "--from", "\u001b[2J"],
  ];
  for (const command of commands) await refusedHere(command, /^Cannot \P{Cc}+$/u);
});
