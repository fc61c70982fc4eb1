/**
 * Checkpoints: one folder for each saved step, complete or not there at all.
 *
 * `step-00000040/` holds `model.safetensors` and `optimizer.safetensors` (F32, keyed by parameter
 * name, never by worker), `config.json` (what rebuilds model and tokenizer) and `manifest.json`,
 * which is written last and holds the others' hashes. Everything is written to a folder with a
 * temporary name, synced, and renamed.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { basename, dirname, join, resolve } from "node:path";
import { layoutSafetensors, type ModelParameter, type StageState } from "../kernels/mod.ts";
import { bytesOf, readFloats } from "./weights.ts";

/** Version of the folder's layout. */
const FORMAT = 1;

/** What a checkpoint's folder holds beside its manifest. */
const FILES = ["model.safetensors", "optimizer.safetensors", "config.json"] as const;

/** The name of a checkpoint's folder. */
export const STEP_FOLDER = /^step-(\d{8,})$/;

/** What `manifest.json` holds. */
interface Manifest {
  readonly format: number;
  readonly step: number;
  readonly files: Readonly<
    Record<typeof FILES[number], { readonly bytes: number; readonly sha256: string }>
  >;
}

/** A checkpoint that was read. */
export interface Checkpoint {
  /** Optimizer steps done. */
  readonly step: number;
  /** Weights and moments. */
  readonly state: StageState;
  /** What `config.json` holds. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Its folder. */
  readonly path: string;
}

/**
 * Writes a checkpoint; one of the same step is replaced.
 *
 * @returns the path of its folder.
 * @throws {Error} saying what is in the way, such as a full disk; what was there before stays.
 */
export async function writeCheckpoint(
  directory: string,
  checkpoint: {
    readonly step: number;
    readonly state: StageState;
    readonly parameters: readonly Pick<ModelParameter, "name" | "shape">[];
    readonly config: Readonly<Record<string, unknown>>;
  },
): Promise<string> {
  const { step, state, parameters, config } = checkpoint;
  const name = `step-${String(step).padStart(8, "0")}`;
  const target = join(directory, name);
  const temporary = join(directory, `.${name}-${crypto.randomUUID()}`);
  try {
    await Deno.mkdir(temporary, { recursive: true });
    const shapes = new Map(parameters.map((parameter) => [parameter.name, parameter.shape]));
    const momentShape = (key: string) => shapes.get(key.slice(0, key.lastIndexOf(".")))!;
    const files = {
      "model.safetensors": await writeTensors(
        join(temporary, "model.safetensors"),
        state.weights,
        (key) => shapes.get(key)!,
      ),
      "optimizer.safetensors": await writeTensors(
        join(temporary, "optimizer.safetensors"),
        state.moments,
        momentShape,
      ),
      "config.json": await writeJson(join(temporary, "config.json"), config),
    };
    const manifest: Manifest = { format: FORMAT, step, files };
    await writeJson(join(temporary, "manifest.json"), manifest);
    await syncFolder(temporary);
    await replaceFolder(temporary, target);
    await syncFolder(directory);
  } catch (cause) {
    await Deno.remove(temporary, { recursive: true }).catch(() => {});
    throw new Error(
      `Cannot write the checkpoint ${target}: its disk must have room and let itself be written to, received ${
        (cause as Error).message
      }; the checkpoints before it stay`,
      { cause },
    );
  }
  return target;
}

/**
 * Makes sure that checkpoints can be written to a directory, before a run spends hours on them, and
 * leaves nothing there: the directory itself is made with its first checkpoint.
 *
 * @throws {RangeError} saying what is in the way.
 */
export async function checkWritable(directory: string): Promise<void> {
  try {
    const folder = await existingFolder(directory);
    await Deno.remove(await Deno.makeTempFile({ dir: folder, prefix: ".writable-" }));
  } catch (cause) {
    throw new RangeError(
      `Cannot write checkpoints to ${directory}: it must be a folder that can be written, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}

/** The folder, or where there is none yet, the nearest above it. */
async function existingFolder(path: string): Promise<string> {
  try {
    await Deno.stat(path);
    return path;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    return await existingFolder(dirname(resolve(path)));
  }
}

/** Renames a folder over another; the other leaves the way first and is removed last. */
async function replaceFolder(from: string, to: string): Promise<void> {
  const old = `${from}-old`;
  const isReplaced = await Deno.rename(to, old).then(() => true, () => false);
  await Deno.rename(from, to);
  if (isReplaced) await Deno.remove(old, { recursive: true });
}

/** Makes renames inside a folder durable. Windows cannot open folders and needs no such call. */
async function syncFolder(path: string): Promise<void> {
  if (Deno.build.os === "windows") return;
  using folder = await Deno.open(path);
  await folder.sync();
}

async function writeTensors(
  path: string,
  tensors: ReadonlyMap<string, Float32Array>,
  shapeOf: (name: string) => readonly number[],
) {
  const infos = new Map(
    [...tensors.keys()].map((name) => [name, { dtype: "F32" as const, shape: shapeOf(name) }]),
  );
  const { header, names } = layoutSafetensors(infos, { format: "pt" });
  function* parts() {
    yield header;
    for (const name of names) yield bytesOf(tensors.get(name)!);
  }
  return await writeFile(path, parts());
}

const writeJson = (path: string, value: unknown) =>
  writeFile(path, [new TextEncoder().encode(JSON.stringify(value, null, 2) + "\n")]);

async function writeFile(path: string, parts: Iterable<Uint8Array>) {
  const hash = createHash("sha256");
  let bytes = 0;
  using file = await Deno.open(path, { write: true, createNew: true });
  for (const part of parts) {
    hash.update(part);
    bytes += part.length;
    for (let done = 0; done < part.length;) done += await file.write(part.subarray(done));
  }
  await file.syncData();
  return { bytes, sha256: hash.digest("hex") };
}

/**
 * Reads the newest whole checkpoint of a directory, or the one of a step's folder. Whatever else
 * the directory holds, such as what a crash left of a checkpoint, is passed over.
 *
 * @returns `undefined` when the path does not exist or holds no checkpoint.
 * @throws {RangeError} when the path is no folder.
 * @throws {SyntaxError} when a step's folder is named, or the directory holds some, and none is whole.
 */
export async function readCheckpoint(path: string): Promise<Checkpoint | undefined> {
  const names = await folderEntries(path);
  if (names.length === 0) return undefined;
  if (STEP_FOLDER.test(basename(path)) || names.includes("manifest.json")) {
    return await readStep(path);
  }
  const folders = names.filter((name) => STEP_FOLDER.test(name))
    .sort((a, b) => Number(b.slice(5)) - Number(a.slice(5)));
  const problems: unknown[] = [];
  for (const folder of folders) {
    try {
      return await readStep(join(path, folder));
    } catch (error) {
      problems.push(error);
    }
  }
  if (problems.length > 0) throw problems[0];
  return undefined;
}

/** The names in a folder; none where there is no folder. */
async function folderEntries(path: string): Promise<string[]> {
  try {
    return await Array.fromAsync(Deno.readDir(path), ({ name }) => name);
  } catch (cause) {
    if (cause instanceof Deno.errors.NotFound) return [];
    throw new RangeError(
      `Cannot read a checkpoint from ${path}: it must be a folder, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}

async function readStep(path: string): Promise<Checkpoint> {
  const manifest = await readJson(join(path, "manifest.json")) as Partial<Manifest>;
  if (manifest.format !== FORMAT || !Number.isSafeInteger(manifest.step)) {
    throw new SyntaxError(
      `Cannot read the checkpoint ${path}: its manifest must have format ${FORMAT}, received ${manifest.format}`,
    );
  }
  for (const name of FILES) {
    const hash = createHash("sha256").update(await readWhole(join(path, name))).digest("hex");
    const expected = manifest.files?.[name].sha256;
    if (hash === expected) continue;
    throw new SyntaxError(
      `Cannot read the checkpoint ${path}: ${name} must have the hash ${expected} of its manifest, received ${hash}; it is torn or was changed`,
    );
  }
  return {
    step: manifest.step!,
    path,
    config: await readJson(join(path, "config.json")),
    state: {
      weights: await readFloats(join(path, "model.safetensors")),
      moments: await readFloats(join(path, "optimizer.safetensors")),
    },
  };
}

async function readWhole(path: string): Promise<Uint8Array> {
  try {
    return await Deno.readFile(path);
  } catch (cause) {
    throw new SyntaxError(
      `Cannot read ${path}: a whole checkpoint must have this file, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}

async function readJson(path: string): Promise<Record<string, unknown>> {
  const text = new TextDecoder().decode(await readWhole(path));
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
    throw new SyntaxError("something that is no object");
  } catch (cause) {
    throw new SyntaxError(
      `Cannot read ${path}: it must be a JSON object, received ${(cause as Error).message}`,
      { cause },
    );
  }
}
