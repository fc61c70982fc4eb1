/** Damages to a checkpoint, accidental or malicious. */

import { join } from "node:path";
import { INHERITED_FLAGS, TRAIN_FLAGS } from "../../console/train/flags.ts";
import { type SafetensorsTensor } from "../../kernels/mod.ts";
import {
  type CheckpointFile,
  type Config,
  forgeConfig,
  forgeFile,
  forgeTensors,
} from "../console/forged.ts";
import type { Draw } from "./cases_helper.ts";

/** One damage. */
export interface Damage {
  readonly name: string;
  /** Damages the folder of a step; the victim is a file that no flag names. */
  readonly harm: (step: string, victim: string) => Promise<void>;
  /** True if the result may be another valid checkpoint. */
  readonly isFree?: boolean;
  /** True if there is no older checkpoint. */
  readonly isAlone: boolean;
}

const TENSORS = ["model.safetensors", "optimizer.safetensors"] as const;
const FILES = ["config.json", "manifest.json", ...TENSORS] as const;

/** Invalid values of flags and sizes. */
const VALUES: readonly unknown[] = [
  ...[null, true, false, -1, -5, 0, 0.5, 1e15, 2 ** 31, 2 ** 32, 1e300, 2 ** 53],
  ...["", "x", "0x10", "1e3", "/dev/zero", "../../victim", "\u001b[2J\n", "data:text/javascript,1"],
  ...[[], {}, [1], { length: 1e9 }, "9".repeat(1000)],
];

type Harm = Omit<Damage, "isAlone">;

/** Combines every value with every name of a list. */
function* valued(
  what: string,
  names: readonly string[],
  values: readonly unknown[],
  isFree: (name: string) => boolean,
  harm: (step: string, name: string, value: unknown, victim: string) => Promise<void>,
): Iterable<Harm> {
  for (const name of names) {
    for (const value of values) {
      yield {
        name: `${what}${name} = ${JSON.stringify(value)?.slice(0, 40)}`,
        isFree: isFree(name),
        harm: (step, victim) => harm(step, name, value, victim),
      };
    }
  }
}

async function changeManifest(step: string, change: (manifest: Config) => void): Promise<void> {
  const path = join(step, "manifest.json"), manifest = JSON.parse(await Deno.readTextFile(path));
  change(manifest);
  await Deno.writeTextFile(path, JSON.stringify(manifest));
}

/** Values of flags, sizes, progress and the manifest. */
function* valueHarms(): Iterable<Harm> {
  const flags = [...Object.keys(TRAIN_FLAGS), "__proto__", "constructor", "from", "module"];
  // Some of these values are valid; but a flag that is not inherited changes no bit.
  const isInherited = (flag: string) => Object.hasOwn(INHERITED_FLAGS, flag);
  yield* valued(
    "flags.",
    flags,
    [...VALUES, "VICTIM"],
    isInherited,
    (step, flag, value, victim) =>
      forgeConfig(step, ({ flags }) => {
        const held = value === "VICTIM" ? victim : value;
        Object.defineProperty(flags, flag, { value: held, enumerable: true });
      }),
  );
  const free = ["tie", "tokenizer", "progress", "flags", "files"];
  const names = ["architecture", "layers", "hidden", "heads", "seq", "vocab", ...free];
  yield* valued(
    "config.",
    names,
    VALUES,
    (name) => free.includes(name),
    (step, name, value) => forgeConfig(step, (config) => void (config[name] = value)),
  );
  yield* valued(
    "progress.",
    ["step", "update", "lossScale"],
    VALUES,
    () => true,
    (step, name, value) => forgeConfig(step, (config: Config) => config.progress[name] = value),
  );
  const fields = ["format", "step", "files", "bytes", "sha256"];
  yield* valued(
    "manifest.",
    fields,
    VALUES,
    () => false,
    (step, field, value) =>
      changeManifest(step, (manifest) => {
        const holder = field in manifest ? manifest : manifest.files["model.safetensors"];
        holder[field] = value;
      }),
  );
}

type Tensors = Map<string, SafetensorsTensor>;

/** Changes of the tensors of a file with a hash that fits. */
const CHANGES: Readonly<Record<string, (tensors: Tensors, name: string) => void>> = {
  missing: (tensors, name) => void tensors.delete(name),
  renamed(tensors, name) {
    tensors.set(`${name}.x`, tensors.get(name)!);
    tensors.delete(name);
  },
  twice: (tensors, name) => void tensors.set(`x.${name}`, tensors.get(name)!),
  "of another shape": (tensors, name) => {
    const { data, shape: [first = 1, ...rest] } = tensors.get(name)!;
    const shape = rest.length > 0 ? [...rest, first] : [1, first];
    tensors.set(name, { dtype: "F32", shape, data });
  },
  empty: (tensors, name) =>
    void tensors.set(name, { dtype: "F32", shape: [0], data: new Uint8Array(0) }),
  "of another type": (tensors, name) =>
    void tensors.set(name, { ...tensors.get(name)!, dtype: "I32" }),
  "not a number": (tensors, name) => {
    const { shape, data: { byteLength } } = tensors.get(name)!;
    const data = new Float32Array(byteLength / 4).fill(NaN);
    tensors.set(name, { dtype: "F32", shape, data });
  },
  "without the others": (tensors, name) => {
    for (const other of [...tensors.keys()]) if (other !== name) tensors.delete(other);
  },
};

function* tensorHarms(draw: Draw): Iterable<Harm> {
  for (const file of TENSORS) {
    for (const [what, change] of Object.entries(CHANGES)) {
      for (let i = 0; i < 5; i++) {
        const nth = draw(1000);
        yield {
          name: `a tensor of ${file} ${what}`,
          // The transpose of a square weight has the same shape.
          isFree: what === "of another shape",
          harm: (step) =>
            forgeTensors(step, file, (tensors) => {
              const names = [...tensors.keys()];
              change(tensors, names[nth % names.length]!);
            }),
        };
      }
    }
  }
}

/** Files that are missing, truncated, swapped, or not files. */
function* fileHarms(draw: Draw): Iterable<Harm> {
  for (const file of FILES) {
    const harmed = (what: string, harm: (path: string, step: string) => unknown): Harm => ({
      name: `${file} ${what}`,
      harm: async (step) => void await harm(join(step, file), step),
    });
    const replaced = (what: string, make: (path: string) => Promise<unknown>) =>
      harmed(what, async (path) => {
        await Deno.remove(path);
        await make(path);
      });
    yield replaced("gone", () => Promise.resolve());
    yield harmed("empty", (path) => Deno.truncate(path, 0));
    yield replaced("a folder", (path) => Deno.mkdir(path));
    for (const to of ["/dev/zero", "/dev/null", "/dev/stdin", "nowhere"]) {
      yield replaced(`a link to ${to}`, (path) => Deno.symlink(to, path));
    }
    yield replaced("a pipe", (path) => new Deno.Command("mkfifo", { args: [path] }).output());
    yield harmed("of 20 GiB", (path) => Deno.truncate(path, 20 * 2 ** 30));
    for (const other of FILES.filter((one) => file < one)) {
      yield harmed(`and ${other} swapped`, async (path, step) => {
        await Deno.rename(path, join(step, "held"));
        await Deno.rename(join(step, other), path);
        await Deno.rename(join(step, "held"), join(step, other));
      });
    }
    for (let i = 0; i < 12; i++) {
      const part = draw(1000) / 1000;
      const lengthOf = (path: string) => Math.floor(part * Deno.statSync(path).size);
      yield harmed(`cut at ${part}`, (path) => Deno.truncate(path, lengthOf(path)));
    }
  }
  for (const size of [20 * 2 ** 30, 2 ** 53]) {
    yield {
      name: `weights of 20 GiB, by a manifest of ${size} bytes`,
      async harm(step) {
        const [weights] = TENSORS;
        await Deno.truncate(join(step, weights), 20 * 2 ** 30);
        await changeManifest(step, ({ files }) => void (files[weights].bytes = size));
      },
    };
  }
}

/** An endless list of changed bits or bytes, with hashes that fit or not. */
function* flips(draw: Draw): Iterable<Harm> {
  for (;;) {
    const file = FILES[draw(4)]!, part = draw(10_000) / 10_000, bit = draw(8), count = 1 + draw(4);
    const isFitted = file !== "manifest.json" && draw(3) === 0;
    yield {
      name: `${count} bytes at ${part} of ${file} with bit ${bit} flipped, ${
        isFitted ? "the hash fits" : "seen by the hash"
      }`,
      isFree: isFitted,
      async harm(step) {
        const path = join(step, file), bytes = await Deno.readFile(path);
        const from = Math.floor(part * bytes.length);
        for (let i = from; i < Math.min(bytes.length, from + count); i++) bytes[i]! ^= 1 << bit;
        if (isFitted) await forgeFile(step, file as CheckpointFile, bytes);
        else await Deno.writeFile(path, bytes);
      },
    };
  }
}

/** An endless list of damages, each to a checkpoint with or without an older one. */
export function* damages(draw: Draw): Iterable<Damage> {
  const listed = [...fileHarms(draw), ...tensorHarms(draw), ...valueHarms()];
  // In random order, so that a smaller campaign has some of each.
  for (let i = listed.length - 1; i > 0; i--) {
    const j = draw(i + 1);
    [listed[i], listed[j]] = [listed[j]!, listed[i]!];
  }
  const random = flips(draw)[Symbol.iterator]();
  for (let nth = 0;; nth++) {
    const harm = nth % 5 === 4 ? undefined : listed.pop();
    yield { ...harm ?? random.next().value as Harm, isAlone: draw(2) === 0 };
  }
}
