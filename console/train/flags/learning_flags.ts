/**
 * The flags of `troupe train` that say what is learnt from, and how.
 *
 * @module
 */

import { MICRO_BATCHES_MAX, WORKERS_MAX } from "../../../actors/run/options/sizes.ts";
import { builtInNames } from "../../../actors/registry/mod.ts";
import { GPT2_MAX, LEARNING_RATE_SCHEDULES } from "../../../kernels/mod.ts";
import { readFromZero, readLossScale } from "../../flags/quantities.ts";
import { PART } from "./model_flags.ts";

/** Data of one's own. A run that goes on wants it named again: no file may name another. */
export const DATA_FILE_FLAGS = {
  text: { kind: "path", value: "FILE", help: "a text of your own in UTF-8, instead of --data" },
  tokens: {
    kind: "path",
    value: "FILE",
    help: "token ids as little-endian uint16, or uint32 in a file.u32, read in order",
  },
} as const;

/** Data that comes with Troupe and has a name. */
const DATA_NAMES = builtInNames("data").filter((name) => !Object.hasOwn(DATA_FILE_FLAGS, name));

/** Data, optimizer, and all else that the numbers of a step depend on. */
export const LEARNING_FLAGS = {
  data: {
    kind: "part",
    choices: DATA_NAMES,
    value: PART,
    otherwise:
      "what the model says: sotu; mnist for mlp and resnet, noisy-mnist for unet, sort for t5",
    help: `${DATA_NAMES.join(", ")}, or one of your own`,
  },
  "micro-batch-size": {
    kind: "integer",
    formerly: "micro-batch",
    aliases: ["batch_size", "per_device_train_batch_size"],
    value: "B",
    maximum: GPT2_MAX["micro-batch"],
    default: 8,
    help: "samples of a micro-batch",
  },
  "micro-batches": {
    kind: "integer",
    aliases: ["gradient_accumulation_steps"],
    value: "N",
    maximum: MICRO_BATCHES_MAX,
    default: 4,
    help: "micro-batches of a step and a replica",
  },
  replicas: {
    kind: "integer",
    value: "W",
    maximum: WORKERS_MAX,
    default: 1,
    help: "data-parallel replicas",
  },
  "drop-last": { kind: "switch", help: "leave out a last step with too few micro-batches" },
  lr: { kind: "number", aliases: ["learning_rate"], default: 0.002, help: "learning rate" },
  "lr-schedule": {
    kind: "choice",
    aliases: ["lr_scheduler_type"],
    choices: LEARNING_RATE_SCHEDULES,
    default: "constant",
    help: "the learning rate after the warm-up",
  },
  "min-lr": { kind: "number", default: 0, help: "what linear and cosine fall to at the end" },
  warmup: {
    kind: "integer",
    minimum: 0,
    otherwise: "10 where a gpt or t5 begins with --clip above 0 and no --lr of your own, else 0",
    help: "steps of linear warm-up",
  },
  optimizer: {
    kind: "part",
    choices: builtInNames("optimizer"),
    value: PART,
    default: "adamw",
    help: `${builtInNames("optimizer").join(", ")}, or settings of your own for one of them`,
  },
  dropout: {
    kind: "number",
    aliases: ["resid_pdrop", "embd_pdrop", "attn_pdrop"],
    below: 1,
    otherwise: "0",
    help: "gpt, llama, mlp, t5: share of the elements that are left out in training",
  },
  "weight-decay": {
    kind: "number",
    default: 0.01,
    help: "weight decay, of tensors with two dimensions or more",
  },
  momentum: { kind: "number", below: 1, default: 0.9, help: "SGD's momentum" },
  beta1: {
    kind: "number",
    aliases: ["adam_beta1"],
    below: 1,
    default: 0.9,
    help: "AdamW's first beta",
  },
  beta2: {
    kind: "number",
    aliases: ["adam_beta2"],
    below: 1,
    default: 0.999,
    help: "AdamW's second beta",
  },
  clip: {
    kind: "own",
    aliases: ["grad_clip", "max_grad_norm"],
    value: "NORM",
    read: readFromZero,
    must: "a number from 0",
    otherwise: "1 where a gpt or t5 begins on --data or --text with flushes, else 0",
    help: "most that the norm of all gradients may be; 0: any",
  },
  precision: {
    kind: "choice",
    aliases: [{ name: "fp16", means: "fp16" }],
    choices: ["fp32", "fp16"],
    default: "fp32",
    help: "how weights, activations and gradients are stored",
  },
  "loss-scale": {
    kind: "own",
    value: "N|dynamic",
    read: readLossScale,
    must: "a number above 0, or dynamic",
    otherwise: "dynamic",
    help: "fp16: factor of the loss",
  },
  reduce: {
    kind: "choice",
    choices: ["deterministic", "fast", "mpi"],
    default: "deterministic",
    help: "all-reduce in copy order, by ring and halving, or by MPI",
  },
  seed: {
    kind: "integer",
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    default: 1,
    help: "of the weights and the order of a text",
  },
} as const;
