/** Models as they are rewritten for the GPU: a device that computes them, and all that training has. */

import { createHash } from "node:crypto";
import { prepareModel } from "../../../../kernels/devices/webgpu/prepare.ts";
import { elementCount } from "../../../../kernels/graph/shapes.ts";
import {
  ADAMW_DEFAULTS,
  compileModel,
  type Device,
  gpt2,
  llama,
  mlp,
  openReference,
  type Precision,
  PRECISIONS,
  type Recompute,
} from "../../../../kernels/mod.ts";
import { cutIntoStages } from "../../../../kernels/compile/layout.ts";
import { openStage } from "../../../../kernels/stage/stage.ts";
import type { OptimizerOptions, StageOptions } from "../../../../kernels/stage/options.ts";
import { ownMemory } from "../../own_memory.ts";
import { compilingBy } from "../../stage/stage_runs.ts";
import { closing, pseudoRandom } from "../models.ts";
import type { TensorSpec } from "../../../../kernels/graph/value.ts";

/** Another device that gets each model rewritten: what the GPU is given, where there is none. */
export const preparing = (device: Device): Device =>
  compilingBy(device, (model) => device.compile(prepareModel(model).bytes));

const VOCAB = 20;
/** Ids that are in every slice of a head, too. */
const IDS = 6;
const GPT = { layers: 1, hidden: 8, heads: 2, seq: 6, vocab: VOCAB };
const SGD: OptimizerOptions = { kind: "sgd", momentum: 0.9, weightDecay: 0.01 };
const LLAMA = () => llama({ ...GPT, keyValueHeads: 1 }, 2);
const MLP = () => mlp({ inputs: 12, hidden: 8, layers: 1, classes: VOCAB }, 4);

/** Options of training a model. */
interface Way {
  readonly model?: () => Parameters<typeof compileModel>[0];
  readonly recompute?: Recompute;
  readonly options?: Partial<StageOptions>;
}

const SPLIT = { options: { backward: "split" } } as const;

const WAYS: Readonly<Record<string, Way>> = {
  gpt: {},
  "gpt, cheap recomputation": { recompute: "cheap" },
  "gpt, full recomputation": { recompute: "full" },
  "gpt, recomputation of intervals": { options: { recomputeInterval: 1 } },
  "gpt, split backward": SPLIT,
  "gpt, split backward and cheap recomputation": { recompute: "cheap", ...SPLIT },
  "gpt, tied": { model: () => gpt2({ ...GPT, tie: true }, 2) },
  "gpt, a head in slices": { model: () => gpt2({ ...GPT, headSlices: 3 }, 2) },
  "gpt, SGD": { options: { optimizer: SGD } },
  "gpt, copies that are added": { options: { addends: 3, collects: true } },
  llama: { model: LLAMA },
  "llama, split backward and cheap recomputation": { model: LLAMA, recompute: "cheap", ...SPLIT },
  mlp: { model: MLP },
  "mlp, split backward": { model: MLP, ...SPLIT },
};

/** Distinct models that training a GPT-2, a Llama or an MLP compiles, by description. */
export async function trainedModels(precisions: readonly Precision[] = PRECISIONS) {
  const models = new Map<string, Uint8Array>(), known = new Set<string>();
  using device = closing(await openReference());
  const all = precisions.flatMap((precision) =>
    Object.entries(WAYS).map((way) => [precision, ...way] as const)
  );
  for (const [precision, what, { model, recompute = "none", options }] of all) {
    const recording = compilingBy(device, (model) => {
      const hash = createHash("sha256").update(model).digest("hex");
      if (!known.has(hash)) models.set(`${precision} ${what}, model ${models.size}`, model);
      known.add(hash);
      return device.compile(model);
    });
    const program = compileModel(model?.() ?? gpt2(GPT, 2), recompute, { precision });
    const way = { optimizer: ADAMW_DEFAULTS, backward: "whole", ...options } as const;
    const stage = await openStage(ownMemory(recording), cutIntoStages(program, 1)[0]!, way);
    for (const rank of [0, 1, 2]) await stage.sums?.collect(rank, 3);
  }
  return models;
}

/** Numbers that an input may have: ids and targets are classes, second moments are not negative. */
export function numbersFor({ name, dtype, shape }: TensorSpec, seed: number, below = IDS) {
  const numbers = pseudoRandom(seed, elementCount(shape));
  if (dtype === "i32") return numbers.map((x) => Math.floor((x + 1) / 2 * below));
  const isPositive = /^m\d|^epsilon$/.test(name);
  return isPositive ? numbers.map((x) => Math.abs(x) + 0.01) : numbers;
}
