/** Models as they are rewritten for the GPU: a device that computes them, and all that training has. */

import { createHash } from "node:crypto";
import { prepareModel } from "../../../../kernels/devices/webgpu/model/prepare_model.ts";
import { elementCount } from "../../../../kernels/graph/shapes.ts";
import {
  ADAMW_DEFAULTS,
  compileModel,
  cutIntoStages,
  type Device,
  gpt2,
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
import { pseudoRandom } from "../models.ts";

/** A device with another way to compile. */
const compiling = (
  device: Device,
  compile: (model: Uint8Array) => ReturnType<Device["compile"]>,
  hasFreeViews: boolean,
): Device =>
  new Proxy(device, {
    get(target, key) {
      if (key === "compile") return compile;
      if (key === "hasFreeViews") return hasFreeViews;
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });

/** Another device that gets each model rewritten: what the GPU is given, where there is none. */
export const preparing = (device: Device): Device =>
  compiling(device, (model) => device.compile(prepareModel(model).bytes), device.hasFreeViews);

const VOCAB = 20;
/** Ids that are in every slice of a head, too. */
const IDS = 6;
const GPT = { layers: 1, hidden: 8, heads: 2, seq: 6, vocab: VOCAB };
const SGD: OptimizerOptions = { kind: "sgd", momentum: 0.9, weightDecay: 0.01 };
const LLAMA = () => llama({ ...GPT, keyValueHeads: 1 }, 2);
const MLP = () => mlp({ inputs: 12, hidden: 8, layers: 1, classes: VOCAB }, 4);

/** How a model is trained. */
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

const hashOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Finds what training in a precision compiles, by what it is, on a device that lays out memory as webgpu does. */
async function modelsIn(precision: Precision): Promise<ReadonlyMap<string, Uint8Array>> {
  const models = new Map<string, Uint8Array>(), known = new Set<string>();
  const device = await openReference();
  for (const [what, { model, recompute = "none", options }] of Object.entries(WAYS)) {
    let count = 0;
    const recording = compiling(device, (model) => {
      const hash = hashOf(model);
      if (!known.has(hash)) models.set(`${precision} ${what}, model ${count++}`, model);
      known.add(hash);
      return device.compile(model);
    }, false);
    const program = compileModel(model?.() ?? gpt2(GPT, 2), recompute, { precision });
    const [whole] = cutIntoStages(program, 1);
    const stage = await openStage(recording, whole!, {
      optimizer: ADAMW_DEFAULTS,
      backward: "whole",
      ...options,
    });
    for (const rank of [0, 1, 2]) await stage.sums?.collect(rank, 3);
  }
  device.close();
  return models;
}

const found = new Map<Precision, ReturnType<typeof modelsIn>>();

/** Different models that training a GPT-2, a Llama or an MLP compiles, by what they are. */
export async function trainedModels(
  precisions: readonly Precision[] = PRECISIONS,
): Promise<Map<string, Uint8Array>> {
  const all = await Promise.all(precisions.map((precision) => {
    const models = found.get(precision) ?? modelsIn(precision);
    found.set(precision, models);
    return models;
  }));
  return new Map(all.flatMap((models) => [...models]));
}

/** Numbers that an input may have: ids and targets are classes, second moments are not negative. */
export function numbersFor({ name, dtype, shape }: Border, seed: number): number[] {
  const numbers = pseudoRandom(seed, elementCount(shape));
  if (name === "index") return [seed % 2];
  if (dtype === "i32") return numbers.map((x) => Math.floor((x + 1) / 2 * IDS));
  const isPositive = /^m\d$|^epsilon$/.test(name);
  return isPositive ? numbers.map((x) => Math.abs(x) + 0.01) : numbers;
}
