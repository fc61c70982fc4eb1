/**
 * Built-in models and optimizers, and the supervisor and worker of a pipeline.
 *
 * @module
 */

import {
  type BuiltModel,
  defineModel,
  type ModelComponent,
  type Trained,
} from "../options/model_definition.ts";
import {
  ADAMW_DEFAULTS,
  type Batch,
  type GenerateOptions,
  generateText,
  gpt2,
  type Gpt2Config,
  type Layer,
  llama,
  mlp,
  mlpLogits,
  type Model,
  openDevice,
  type PictureConfig,
  resnet,
  t5,
  type T5Config,
  t5Logits,
  unet,
} from "../../kernels/mod.ts";
import {
  assertInput,
  llamaSizes,
  resnetLogits,
  t5Ties,
  unetPictures,
} from "../../kernels/internal.ts";
import {
  PROTOCOL_VERSION,
  type SupervisorMessage,
  type WorkerMessage,
} from "../pipeline/protocol.ts";
import { pipelineSupervisor, SUPERVISOR_MESSAGES } from "../pipeline/supervisor.ts";
import type { SupervisorInit } from "../pipeline/supervisor_state.ts";
import { pipelineWorker, WORKER_MESSAGES } from "../pipeline/worker.ts";
import type { WorkerInit } from "../pipeline/worker_state.ts";
import type { Context, Message } from "../runtime/mod.ts";
import type { ActorDefinition, Schema } from "../sandbox/define.ts";
import { defineOptimizer, type OptimizerComponent } from "./component.ts";

/** Generates a sample text, or returns the reason why it cannot. */
async function sampleText(
  architecture: NonNullable<GenerateOptions["architecture"]>,
  config: GenerateOptions["config"],
  { weights, device: choice, data: { tokenizer }, seed }: Trained,
): Promise<string> {
  if (!tokenizer || config.vocab < tokenizer.vocabularySize) {
    return "No sample: the token ids have no tokenizer (for --tokens, --tokenizer names it); generate --ids continues ids.";
  }
  const device = await openDevice(choice.name, { ...choice, isBlocking: true });
  const options = { architecture, config, weights, prompt: "The ", tokens: 200, seed };
  const text = await generateText(device, tokenizer, options);
  device.close();
  return `A sample:\n${text}`;
}

/** Returns a model with its configuration, and the function that reports it once trained. */
const builtModel = (
  architecture: string,
  model: Model,
  config: object,
  show: NonNullable<BuiltModel["show"]>,
): BuiltModel => ({ ...model, config: { architecture, ...config }, show });

/** GPT-2. */
export const gptModel: ModelComponent<"vocab"> = defineModel({
  name: "gpt",
  version: "1",
  sizes: ["vocab"],
  data: "sotu",
  build({ layers, hidden, heads, seq, vocab, tie, headSlices, dropout, microBatch, data }) {
    const sizes = { layers, hidden, heads, seq, vocab: vocab ?? data.vocab, tie };
    const config: Gpt2Config = { ...sizes, ...headSlices && { headSlices } };
    const model = gpt2({ ...config, dropout }, microBatch);
    return builtModel("gpt2", model, config, (trained) => sampleText("gpt2", config, trained));
  },
});

/** Llama. */
export const llamaModel: ModelComponent<"vocab"> = defineModel({
  name: "llama",
  version: "1",
  sizes: ["vocab"],
  data: "sotu",
  build(options) {
    const { layers, hidden, heads, seq, vocab, tie, headSlices = 1, dropout, microBatch } = options;
    assertInput(headSlices <= 1, "build a Llama", "its head must be in one slice", headSlices);
    const { keyValueHeads, intermediate, ropeTheta, normEpsilon, data } = options;
    const { dropout: _, ...config } = llamaSizes({
      ...{ layers, hidden, heads, seq, vocab: vocab ?? data.vocab, tie },
      ...{ keyValueHeads, intermediate, ropeTheta, normEpsilon },
    });
    const model = llama({ ...config, dropout }, microBatch);
    return builtModel("llama", model, config, (trained) => sampleText("llama", config, trained));
  },
});

/**
 * Reports the share of held-out samples whose label has the greatest logit.
 *
 * @param logits layers that predict for one sample.
 */
async function reportAccuracy(
  { data, predict }: Trained,
  logits: readonly Layer[],
): Promise<string | undefined> {
  const samples = data.heldOut?.(1) ?? [];
  if (samples.length === 0) return undefined;
  const logitsOf = await predict(logits);
  let right = 0;
  for (const { features, labels } of samples) {
    const logits = await logitsOf({ features: features! });
    if (logits.indexOf(Math.max(...logits)) === labels![0]) right++;
  }
  const percent = (100 * right / samples.length).toFixed(1);
  return `${percent} % of the held-out samples are recognised`;
}

/** A multilayer perceptron. */
export const mlpModel: ModelComponent<"inputs" | "classes"> = defineModel({
  name: "mlp",
  version: "1",
  sizes: ["inputs", "classes"],
  data: "mnist",
  build({ layers, hidden, dropout, microBatch, data: { inputs, classes } }) {
    const config = { inputs, hidden, layers, classes };
    const model = mlp({ ...config, dropout }, microBatch);
    const show = (trained: Trained) => reportAccuracy(trained, mlpLogits(config, 1));
    return builtModel("mlp", model, config, show);
  },
});

/** AdamW. */
export const adamw: OptimizerComponent = defineOptimizer({
  name: "adamw",
  version: "1",
  options: ({ beta1, beta2, weightDecay }) => ({ ...ADAMW_DEFAULTS, beta1, beta2, weightDecay }),
});

/** SGD with momentum. */
export const sgd: OptimizerComponent = defineOptimizer({
  name: "sgd",
  version: "1",
  options: ({ momentum, weightDecay }) => ({ kind: "sgd", momentum, weightDecay }),
});

/** Lion. */
export const lion: OptimizerComponent = defineOptimizer({
  name: "lion",
  version: "1",
  options: ({ beta1, beta2, weightDecay }) => ({ kind: "lion", beta1, beta2, weightDecay }),
});

/** Adafactor. */
export const adafactor: OptimizerComponent = defineOptimizer({
  name: "adafactor",
  version: "1",
  options: ({ weightDecay }) => ({ kind: "adafactor", weightDecay }),
});

/** A residual network. */
export const resnetModel: ModelComponent<"height" | "width" | "channels" | "classes"> = defineModel(
  {
    name: "resnet",
    version: "1",
    sizes: ["height", "width", "channels", "classes"],
    data: "mnist",
    build({ layers, hidden, microBatch, data: { height, width, channels, classes } }) {
      const config = { height, width, channels, layers, hidden, classes };
      const model = resnet(config, microBatch);
      const show = (trained: Trained) => reportAccuracy(trained, resnetLogits(config, 1));
      return builtModel("resnet", model, config, show);
    },
  },
);

/** Schemas that accept all messages of a protocol; the actors check them. */
const all = <M extends Message>(types: readonly M["type"][]) =>
  Object.fromEntries(types.map((type) => [type, {}])) as { readonly [K in M["type"]]: Schema };

/** The supervisor of a pipeline, as a package would export it. */
export const supervisor: ActorDefinition<
  SupervisorInit,
  SupervisorMessage,
  Context<SupervisorMessage>
> = {
  name: "pipeline",
  protocol: PROTOCOL_VERSION,
  messages: all<SupervisorMessage>(SUPERVISOR_MESSAGES),
  create: pipelineSupervisor,
};

/** A worker of a pipeline, which owns a device and stages. */
export const worker: ActorDefinition<WorkerInit, WorkerMessage, Context<WorkerMessage>> = {
  name: "pipeline-worker",
  protocol: PROTOCOL_VERSION,
  messages: all<WorkerMessage>(WORKER_MESSAGES),
  create: pipelineWorker,
};

/** T5: the published model with a tied head, otherwise version 1.1. */
export const t5Model: ModelComponent<"vocab"> = defineModel({
  name: "t5",
  version: "1",
  sizes: ["vocab"],
  data: "sort",
  readsPairs: true,
  build({ layers, hidden, heads, seq, vocab, tie, dropout, microBatch, data }) {
    const config = { layers, hidden, heads, seq, vocab: vocab ?? data.vocab, tie, gated: !tie };
    const model = t5({ ...config, ...dropout && { dropout } }, microBatch);
    const show = (trained: Trained) => reportSequences(config, trained, microBatch);
    return builtModel("t5", model, config, show);
  },
});

/** Most samples that are decoded together. */
const SAMPLES_MAX = 64;

/** Reports the share of held-out sequences that are predicted without a mistake. */
async function reportSequences(
  sizes: T5Config,
  { data, predict }: Trained,
  microBatch: number,
): Promise<string | undefined> {
  const evaluated = data.heldOut?.(microBatch) ?? [];
  const samples = Math.min(SAMPLES_MAX, evaluated.length * microBatch);
  const [batch] = data.heldOut?.(samples) ?? [];
  if (!batch) return undefined;
  const config = { ...sizes, seq: batch.ids!.length / samples };
  const logitsOf = await predict(t5Logits(config, samples), t5Ties(config));
  const targets = batch.targets as Int32Array, written = await decode(config, batch.ids!, logitsOf);
  const isRight = (sample: number) => {
    const from = sample * config.seq, own = targets.subarray(from, from + config.seq);
    return own.every((target, i) => target < 0 || target === written[from + i]);
  };
  const right = Array.from({ length: samples }, (_, sample) => isRight(sample)).filter(Boolean);
  const percent = (100 * right.length / samples).toFixed(1);
  return `${percent} % of ${samples} held-out sequences are written without a mistake`;
}

/** Decodes all samples greedily. */
async function decode(
  { seq, vocab }: T5Config,
  ids: Batch[string],
  logitsOf: (fields: Batch) => Promise<Float32Array>,
): Promise<Int32Array> {
  const written = new Int32Array(ids.length).fill(-1);
  for (let token = 0; token < seq; token++) {
    const logits = await logitsOf({ ids, targets: written });
    for (let at = token; at < written.length; at += seq) {
      const own = logits.subarray(at * vocab, (at + 1) * vocab);
      written[at] = own.indexOf(Math.max(...own));
    }
  }
  return written;
}

/** A U-Net. */
export const unetModel: ModelComponent<"height" | "width" | "channels"> = defineModel({
  name: "unet",
  version: "1",
  sizes: ["height", "width", "channels"],
  data: "noisy-mnist",
  build({ layers, hidden, microBatch, data: { height, width, channels } }) {
    const config = { height, width, channels, layers, hidden };
    const model = unet(config, microBatch);
    return builtModel("unet", model, config, (trained) => reportPictures(config, trained));
  },
});

/** Reports the decrease of noise in held-out pictures, and draws the first of them. */
async function reportPictures(
  config: PictureConfig,
  { data, predict }: Trained,
): Promise<string | undefined> {
  const pictures = data.heldOut?.(1) ?? [];
  if (pictures.length === 0) return undefined;
  const cleaned = await predict(unetPictures(config, 1));
  let before = 0, after = 0, first: string | undefined;
  for (const { features, targets } of pictures as readonly Record<string, Float32Array>[]) {
    const [noisy, wanted] = [features!, targets!], made = await cleaned({ features: noisy });
    before += meanSquaredError(noisy, wanted);
    after += meanSquaredError(made, wanted);
    first ??= drawn([noisy, made, wanted], config);
  }
  const mean = (sum: number) => (sum / pictures.length).toFixed(4);
  return `The mean squared error of ${pictures.length} held-out pictures falls from ${
    mean(before)
  } to ${mean(after)}; one with noise, cleaned by the network, and without noise:\n${first}`;
}

const meanSquaredError = (a: Float32Array, b: Float32Array): number =>
  a.reduce((sum, value, i) => sum + (value - b[i]!) ** 2, 0) / a.length;

/** Shades from 0 to 1. */
const SHADES = [..." ░▒▓█"];

/** Draws the first channels of pictures side by side; a character is two pixels high. */
function drawn(pictures: readonly Float32Array[], { height, width }: PictureConfig): string {
  const letter = (picture: Float32Array, row: number, column: number) => {
    const [upper, lower = upper] = [row, row + 1].map((at) =>
      at < height ? picture[at * width + column]! : undefined
    );
    const shade = Math.round((upper! + lower!) / 2 * (SHADES.length - 1));
    return SHADES[Math.max(0, Math.min(shade, SHADES.length - 1))];
  };
  const columns = Array.from({ length: width }, (_, column) => column);
  const lines = Array.from(
    { length: Math.ceil(height / 2) },
    (_, line) =>
      pictures.map((picture) => columns.map((column) => letter(picture, 2 * line, column)).join(""))
        .join(" │ "),
  );
  return lines.join("\n");
}
