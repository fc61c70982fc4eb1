/** What can happen to a checkpoint, by accident or by a stranger's hand. */

import { join } from "node:path";
import { INHERITED_FLAGS, TRAIN_FLAGS } from "../../console/train/train_flags.ts";
import { type SafetensorsTensor } from "../../kernels/mod.ts";
import {
  type CheckpointFile,
  type Config,
  forgeConfig,
  forgeFile,
  forgeTensors,
} from "../console/forged.ts";

/** One damage. */
export interface Damage {
  readonly name: string;
  /** Does it to the folder of a step; the victim is a file that nobody named. */
  readonly harm: (step: string, victim: string) => Promise<void>;
  /** Whether what comes out may be another honest checkpoint. */
  readonly isFree?: boolean;
  /** Whether there is no older checkpoint to go back to. */
  readonly isAlone: boolean;
}

/** A whole number from 0 to `most`. */
type Draw = (most: number) => number;

const FILES = [
  "config.json",
  "manifest.json",
  "model.safetensors",
  "optimizer.safetensors",
] as const;
const TENSORS = ["model.safetensors", "optimizer.safetensors"] as const;

/** Values that a flag or a size should never have had. */
const VALUES: readonly unknown[] = [
  ...[null, true, false, -1, -5, 0, 0.5, 1e15, 2 ** 31, 2 ** 32, 1e300, 2 ** 53],
  ...["", "x", "0x10", "1e3", "/dev/zero", "../../victim", "\u001b[2J\n", "data:text/javascript,1"],
  ...[[], {}, [1], { length: 1e9 }, "9".repeat(1000)],
];

type Harm = Omit<Damage, "isAlone">;

/** Flags of every kind with every value: those that are no one's to inherit change nothing. */
function* flagHarms(): Iterable<Harm> {
  for (const flag of [...Object.keys(TRAIN_FLAGS), "__proto__", "constructor", "from", "module"]) {
    for (const value of [...VALUES, "VICTIM"]) {
      yield {
        name: `flags.${flag} = ${JSON.stringify(value)?.slice(0, 40)}`,
        // Some of these values are as good as others; but what nobody inherits changes no bit.
        isFree: Object.hasOwn(INHERITED_FLAGS, flag),
        harm: (step, victim) =>
          forgeConfig(step, ({ flags }) => {
            const held = value === "VICTIM" ? victim : value;
            Object.defineProperty(flags, flag, { value: held, enumerable: true });
          }),
      };
    }
  }
}

/** Sizes and progress in the config, and all of it at once. */
function* configHarms(): Iterable<Harm> {
  const names = ["architecture", "layers", "hidden", "heads", "seq", "vocab", "tie", "tokenizer"];
  for (const name of [...names, "flags", "files", "progress"]) {
    for (const value of VALUES) {
      yield {
        name: `config.${name} = ${JSON.stringify(value)?.slice(0, 40)}`,
        isFree: ["tie", "tokenizer", "progress", "flags", "files"].includes(name),
        harm: (step) => forgeConfig(step, (config) => void (config[name] = value)),
      };
    }
  }
  const progress = ["step", "update", "lossScale"];
  for (const name of progress) {
    for (const value of VALUES) {
      yield {
        name: `progress.${name} = ${JSON.stringify(value)?.slice(0, 40)}`,
        isFree: true,
        harm: (step) => forgeConfig(step, (config: Config) => config.progress[name] = value),
      };
    }
  }
}

/** Fields of the manifest. */
function* manifestHarms(): Iterable<Harm> {
  const fields = ["format", "step", "files", "bytes", "sha256"];
  for (const field of fields) {
    for (const value of VALUES) {
      yield {
        name: `manifest.${field} = ${JSON.stringify(value)?.slice(0, 40)}`,
        async harm(step) {
          const path = join(step, "manifest.json");
          const manifest = JSON.parse(await Deno.readTextFile(path));
          const holder = field in manifest ? manifest : manifest.files["model.safetensors"];
          holder[field] = value;
          await Deno.writeTextFile(path, JSON.stringify(manifest));
        },
      };
    }
  }
}

type Tensors = Map<string, SafetensorsTensor>;

/** What can be done to the tensors of a file while its hash fits. */
const CHANGES: Readonly<Record<string, (tensors: Tensors, name: string) => void>> = {
  missing: (tensors, name) => void tensors.delete(name),
  renamed(tensors, name) {
    tensors.set(`${name}.x`, tensors.get(name)!);
    tensors.delete(name);
  },
  twice: (tensors, name) => void tensors.set(`x.${name}`, tensors.get(name)!),
  "of another shape": (tensors, name) => {
    const { data } = tensors.get(name)!, [first = 1, ...rest] = tensors.get(name)!.shape;
    tensors.set(name, {
      dtype: "F32",
      shape: rest.length > 0 ? [...rest, first] : [1, first],
      data,
    });
  },
  empty: (tensors, name) =>
    void tensors.set(name, { dtype: "F32", shape: [0], data: new Uint8Array(0) }),
  "of another type": (tensors, name) =>
    void tensors.set(name, { ...tensors.get(name)!, dtype: "I32" }),
  "not a number": (tensors, name) => {
    const { shape, data } = tensors.get(name)!;
    tensors.set(name, {
      dtype: "F32",
      shape,
      data: new Float32Array(data.byteLength / 4).fill(NaN),
    });
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
          // A square weight that is turned has its own shape again.
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

/** Files that are gone, cut, swapped, or something else than files. */
function* fileHarms(draw: Draw): Iterable<Harm> {
  for (const file of FILES) {
    const at = (step: string) => join(step, file);
    yield { name: `${file} gone`, harm: (step) => Deno.remove(at(step)) };
    yield { name: `${file} empty`, harm: (step) => Deno.truncate(at(step), 0) };
    yield {
      name: `${file} a folder`,
      async harm(step) {
        await Deno.remove(at(step));
        await Deno.mkdir(at(step));
      },
    };
    for (const to of ["/dev/zero", "/dev/null", "/dev/stdin", "nowhere"]) {
      yield {
        name: `${file} a link to ${to}`,
        async harm(step) {
          await Deno.remove(at(step));
          await Deno.symlink(to, at(step));
        },
      };
    }
    yield {
      name: `${file} a pipe`,
      async harm(step) {
        await Deno.remove(at(step));
        await new Deno.Command("mkfifo", { args: [at(step)] }).output();
      },
    };
    yield { name: `${file} of 20 GiB`, harm: (step) => Deno.truncate(at(step), 20 * 2 ** 30) };
    for (const other of FILES) {
      if (file >= other) continue;
      yield {
        name: `${file} and ${other} swapped`,
        async harm(step) {
          await Deno.rename(at(step), join(step, "held"));
          await Deno.rename(join(step, other), at(step));
          await Deno.rename(join(step, "held"), join(step, other));
        },
      };
    }
    for (let i = 0; i < 12; i++) {
      const part = draw(999) / 1000;
      yield {
        name: `${file} cut at ${part}`,
        async harm(step) {
          const { size } = await Deno.stat(at(step));
          await Deno.truncate(at(step), Math.floor(part * size));
        },
      };
    }
  }
  for (const size of [20 * 2 ** 30, 2 ** 53]) {
    yield {
      name: `weights of 20 GiB, as a manifest of ${size} bytes says`,
      async harm(step) {
        await Deno.truncate(join(step, "model.safetensors"), 20 * 2 ** 30);
        const path = join(step, "manifest.json");
        const manifest = JSON.parse(await Deno.readTextFile(path));
        manifest.files["model.safetensors"].bytes = size;
        await Deno.writeTextFile(path, JSON.stringify(manifest));
      },
    };
  }
}

/** A bit or some bytes changed, without end: hashes fit or do not. */
function* flips(draw: Draw): Iterable<Harm> {
  for (;;) {
    const file = FILES[draw(3)]!, part = draw(9999) / 10000, bit = draw(7), count = 1 + draw(3);
    const isFitted = file !== "manifest.json" && draw(2) === 0;
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

/** Damages without end, each for a checkpoint with an older one beside it, or alone. */
export function* damages(draw: Draw): Iterable<Damage> {
  const listed = [
    ...fileHarms(draw),
    ...tensorHarms(draw),
    ...manifestHarms(),
    ...configHarms(),
    ...flagHarms(),
  ];
  // In any order, so that a smaller campaign has some of each.
  for (let i = listed.length - 1; i > 0; i--) {
    const j = draw(i);
    [listed[i], listed[j]] = [listed[j]!, listed[i]!];
  }
  const random = flips(draw)[Symbol.iterator]();
  for (const harm of listed) {
    yield { ...harm, isAlone: draw(1) === 0 };
    if (draw(3) === 0) yield { ...random.next().value as Harm, isAlone: draw(1) === 0 };
  }
  for (;;) yield { ...random.next().value as Harm, isAlone: draw(1) === 0 };
}
