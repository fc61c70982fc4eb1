/** Every model that training a GPT-2, a Llama or an MLP compiles, and numbers for its inputs. */

import { createHash } from "node:crypto";
import {
  ADAMW_DEFAULTS,
  compileModel,
  cutIntoStages,
  type Device,
  gpt2,
  type HostArray,
  llama,
  mlp,
  openReference,
  openStage,
  type OptimizerOptions,
  type Precision,
  PRECISIONS,
  type Recompute,
  type StageOptions,
} from "../../../../kernels/mod.ts";
import type { Border } from "../../../../kernels/onnx/signature.ts";
import { elementCount } from "../../../../kernels/graph/shapes.ts";
import { hostArray, pseudoRandom } from "../models.ts";

const VOCAB = 20;
/** Ids that are in every slice of a head, too. */
const IDS = 6;
const GPT = { layers: 1, hidden: 8, heads: 2, seq: 6, vocab: VOCAB };
const SGD: OptimizerOptions = { kind: "sgd", momentum: 0.9, weightDecay: 0.01 };

/** How a model is trained. */
interface Way {
  readonly model?: () => Parameters<typeof compileModel>[0];
  readonly recompute?: Recompute;
  readonly options?: Partial<StageOptions>;
}

const WAYS: Readonly<Record<string, Way>> = {
  gpt: {},
  "gpt, cheap recomputation": { recompute: "cheap" },
  "gpt, full recomputation": { recompute: "full" },
  "gpt, recomputation of intervals": { options: { recomputeInterval: 1 } },
  "gpt, split backward": { options: { backward: "split" } },
  "gpt, split backward and cheap recomputation": {
    recompute: "cheap",
    options: { backward: "split" },
  },
  "gpt, tied": { model: () => gpt2({ ...GPT, tie: true }, 2) },
  "gpt, a head in slices": { model: () => gpt2({ ...GPT, headSlices: 3 }, 2) },
  "gpt, SGD": { options: { optimizer: SGD } },
  "gpt, copies that are added": { options: { addends: 3, collects: true } },
  llama: { model: () => llama({ ...GPT, keyValueHeads: 1 }, 2) },
  "llama, split backward and cheap recomputation": {
    model: () => llama({ ...GPT, keyValueHeads: 1 }, 2),
    recompute: "cheap",
    options: { backward: "split" },
  },
  mlp: { model: () => mlp({ inputs: 12, hidden: 8, layers: 1, classes: VOCAB }, 4) },
  "mlp, split backward": {
    model: () => mlp({ inputs: 12, hidden: 8, layers: 1, classes: VOCAB }, 4),
    options: { backward: "split" },
  },
};

/** A device that remembers what it compiles, and lays out memory as webgpu does. */
function recording(device: Device, models: Map<string, Uint8Array>, name: string): Device {
  let count = 0;
  const known = new Set([...models.values()].map(hashOf));
  return new Proxy(device, {
    get(target, key) {
      if (key === "hasFreeViews") return false;
      if (key === "compile") {
        return (model: Uint8Array) => {
          const hash = hashOf(model);
          if (!known.has(hash)) models.set(`${name}, model ${count++}`, model);
          known.add(hash);
          return target.compile(model);
        };
      }
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

const hashOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Different models, by what they are. */
export async function trainedModels(
  precisions: readonly Precision[] = PRECISIONS,
): Promise<Map<string, Uint8Array>> {
  const models = new Map<string, Uint8Array>(), device = await openReference();
  for (const precision of precisions) {
    for (const [what, { model, recompute = "none", options }] of Object.entries(WAYS)) {
      const program = compileModel(model?.() ?? gpt2(GPT, 2), recompute, { precision });
      const [whole] = cutIntoStages(program, 1);
      const stage = await openStage(recording(device, models, `${precision} ${what}`), whole!, {
        optimizer: ADAMW_DEFAULTS,
        backward: "whole",
        ...options,
      });
      for (const rank of [0, 1, 2]) await stage.sums?.collect(rank, 3);
    }
  }
  device.close();
  return models;
}

/** Numbers that an input may have: ids and targets are classes, second moments are not negative. */
export function numbersFor({ name, dtype, shape }: Border, seed: number): HostArray {
  const numbers = pseudoRandom(seed, elementCount(shape));
  if (name === "index") return hostArray(dtype, [seed % 2]);
  if (dtype === "i32") return hostArray(dtype, numbers.map((x) => Math.floor((x + 1) / 2 * IDS)));
  const isPositive = /^m\d$|^epsilon$/.test(name);
  return hostArray(dtype, isPositive ? numbers.map((x) => Math.abs(x) + 0.01) : numbers);
}
