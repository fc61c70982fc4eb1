/** Forged checkpoints: changed, with hashes that fit. */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { encodeSafetensors, readSafetensors, type SafetensorsTensor } from "../../kernels/mod.ts";

/** A file of a checkpoint in its manifest. */
export type CheckpointFile = "model.safetensors" | "optimizer.safetensors" | "config.json";

/** Writes a file of a checkpoint, and its size and hash into the manifest. */
export async function forgeFile(folder: string, file: CheckpointFile, content: Uint8Array) {
  await Deno.writeFile(join(folder, file), content);
  const manifest = join(folder, "manifest.json");
  const held = JSON.parse(await Deno.readTextFile(manifest));
  const sha256 = createHash("sha256").update(content).digest("hex");
  held.files[file] = { bytes: content.length, sha256 };
  await Deno.writeTextFile(manifest, JSON.stringify(held));
}

/** Contents of `config.json`, for tests to change. */
// deno-lint-ignore no-explicit-any
export type Config = any;

/** Changes the config of a checkpoint. */
export async function forgeConfig(folder: string, change: (config: Config) => void): Promise<void> {
  const config = JSON.parse(await Deno.readTextFile(join(folder, "config.json")));
  change(config);
  await forgeFile(folder, "config.json", new TextEncoder().encode(JSON.stringify(config)));
}

/** Changes the tensors of a file of a checkpoint. */
export async function forgeTensors(
  folder: string,
  file: "model.safetensors" | "optimizer.safetensors",
  change: (tensors: Map<string, SafetensorsTensor>) => void,
): Promise<void> {
  const { tensors, metadata } = await readSafetensors(join(folder, file));
  change(tensors);
  await forgeFile(folder, file, encodeSafetensors(tensors, metadata));
}

/** Copies a checkpoint's folder. */
export async function copyFolder(from: string, to: string): Promise<string> {
  await Deno.mkdir(to, { recursive: true });
  for await (const { name } of Deno.readDir(from)) {
    await Deno.copyFile(join(from, name), join(to, name));
  }
  return to;
}
