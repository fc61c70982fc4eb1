/**
 * The flags of `troupe train`.
 *
 * @module
 */

import { RECOMPUTE_POLICIES } from "../../kernels/mod.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import { type FlagValues, type GivenFlags, helpLines } from "./flags.ts";

/** The model and its sizes: these cannot change when a run goes on. */
export const MODEL_FLAGS = {
  model: { kind: "choice", choices: ["gpt", "mlp"], default: "gpt", help: "what to train" },
  layers: { kind: "integer", default: 4, help: "transformer blocks, or hidden layers of the mlp" },
  hidden: { kind: "integer", default: 128, help: "width of the layers" },
  heads: { kind: "integer", default: 4, help: "attention heads" },
  seq: { kind: "integer", default: 64, help: "tokens of a sample" },
  vocab: { kind: "integer", help: "number of token ids (that of the tokenizer)" },
  tokenizer: {
    kind: "choice",
    choices: ["bytes", "gpt2"],
    default: "bytes",
    help: "what the tokens of a text are",
  },
} as const;

/** Data and optimizer: a run that goes on inherits these. */
export const LEARNING_FLAGS = {
  data: { kind: "text", value: "TEXT|mnist", help: "sotu or moby-dick (sotu); mnist for the mlp" },
  text: { kind: "text", value: "FILE", help: "a text of your own in UTF-8, instead of --data" },
  tokens: { kind: "text", value: "FILE", help: "token ids as little-endian uint16, read in order" },
  "micro-batch": { kind: "integer", value: "B", default: 8, help: "samples of a micro-batch" },
  "micro-batches": { kind: "integer", value: "N", default: 4, help: "micro-batches of a step" },
  lr: { kind: "number", default: 0.002, help: "learning rate" },
  "lr-schedule": {
    kind: "choice",
    choices: ["constant", "cosine"],
    default: "constant",
    help: "the learning rate after the warm-up",
  },
  warmup: { kind: "integer", minimum: 0, default: 0, help: "steps of linear warm-up" },
  "weight-decay": { kind: "number", default: 0.01, help: "AdamW's weight decay" },
  beta1: { kind: "number", below: 1, default: 0.9, help: "AdamW's first beta" },
  beta2: { kind: "number", below: 1, default: 0.999, help: "AdamW's second beta" },
  seed: { kind: "integer", minimum: 0, default: 1, help: "of the weights and the order of a text" },
} as const;

/** How it runs: these may change when a run goes on. */
const RUNNING_FLAGS = {
  steps: { kind: "integer", default: 600, help: "optimizer steps of the whole run" },
  workers: { kind: "integer", value: "D", default: 2, help: "actors of the pipeline" },
  schedule: {
    kind: "choice",
    value: "NAME",
    choices: scheduleNames(),
    default: "message-driven",
    help: "which action a worker runs next; see troupe schedule list",
  },
  "pipeline-limit": {
    kind: "integer",
    value: "L",
    help: "message-driven: micro-batches in flight (D)",
  },
  chunks: { kind: "integer", value: "V", help: "interleaved, looped-bfs: stages on a worker (2)" },
  waves: { kind: "integer", value: "W", help: "hanayo: waves (1)" },
  order: {
    kind: "choice",
    choices: ["fifo", "backward-first"],
    default: "fifo",
    help: "message-driven: which message goes first",
  },
  device: {
    kind: "choice",
    choices: ["auto", "native", "wasm", "reference"],
    default: "auto",
    help: "what computes",
  },
  runtime: {
    kind: "choice",
    choices: ["workers", "local", "serial"],
    default: "workers",
    help: "where actors run",
  },
  recompute: {
    kind: "choice",
    choices: RECOMPUTE_POLICIES,
    default: "none",
    help: "activations computed again in the backward",
  },
  weights: { kind: "text", value: "FILE", help: "first weights: safetensors with GPT-2's names" },
  resume: { kind: "text", value: "DIR", help: "go on from the newest checkpoint in DIR" },
  out: { kind: "text", value: "DIR", help: "where checkpoints go (runs/MODEL; none with --json)" },
  "checkpoint-every": { kind: "integer", value: "K", help: "steps (one checkpoint, at the end)" },
  "eval-every": { kind: "integer", value: "K", help: "steps (50; not with --json or --tokens)" },
  json: { kind: "switch", help: "one JSON object a line instead of words" },
  help: { kind: "switch", help: "show this" },
} as const;

/** Every flag of `troupe train`. */
export const TRAIN_FLAGS = { ...MODEL_FLAGS, ...LEARNING_FLAGS, ...RUNNING_FLAGS } as const;

/** The values of the flags of `troupe train`. */
export type TrainFlags = FlagValues<typeof TRAIN_FLAGS>;

/** The values of those flags of `troupe train` that were given. */
export type GivenTrainFlags = GivenFlags<typeof TRAIN_FLAGS>;

/** The help of `troupe train`. */
export function trainHelp(): string {
  return [
    "Trains a model with a pipeline of stage actors.",
    "",
    "The model (fixed once a run has begun):",
    ...helpLines(MODEL_FLAGS),
    "",
    "What it learns from, and how (a resumed run inherits these):",
    ...helpLines(LEARNING_FLAGS),
    "",
    "How it runs:",
    ...helpLines(RUNNING_FLAGS),
  ].join("\n");
}
