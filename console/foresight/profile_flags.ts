/**
 * The flags of `troupe profile`.
 *
 * @module
 */

import { WORKERS_MAX } from "../../actors/run/options/sizes.ts";
import { type Recompute, RECOMPUTE_POLICIES } from "../../kernels/mod.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { DEVICE_FLAG } from "../flags/device_flag.ts";
import type { FlagValues } from "../flags/flag.ts";
import { BUILT_MODEL_FLAG, MODEL_FLAGS } from "../train/flags/model_flags.ts";
import { readCounts } from "./plan_flags.ts";

function readPolicies(text: string): readonly Recompute[] | undefined {
  const policies = text.split(",") as Recompute[];
  return policies.every((one) => RECOMPUTE_POLICIES.includes(one)) ? policies : undefined;
}

const { tokenizer: _, ...OWN_FLAGS } = MODEL_FLAGS;

/** What is measured of the model. */
const MODEL = {
  ...OWN_FLAGS,
  model: BUILT_MODEL_FLAG,
  vocab: { ...MODEL_FLAGS.vocab, otherwise: "256, as of bytes" },
  "micro-batch-size": {
    kind: "own",
    formerly: "micro-batch",
    aliases: ["batch_size"],
    value: "B,B,…",
    read: readCounts,
    must: "numbers of samples from 1 with commas between them, such as 2,4,8",
    otherwise: "1,2,4,8",
    help: "samples of a micro-batch: each size is measured; that of the run with --from-trace",
  },
  recompute: {
    kind: "own",
    value: "POLICY,…",
    read: readPolicies,
    must: `one or more of ${RECOMPUTE_POLICIES.join(",")}`,
    otherwise: "none",
    help: "activations computed again in the backward: each policy is measured",
  },
} as const;

/** How it is measured. */
const MEASURING = {
  device: DEVICE_FLAG,
  workers: {
    kind: "integer",
    value: "P",
    maximum: WORKERS_MAX,
    otherwise: "as many as there are cores",
    help: "the most workers that compute at once: 1, 2, 4 … up to it are measured",
  },
  isolation: {
    kind: "choice",
    choices: ["worker", "process"],
    otherwise: "worker; process on webgpu",
    help: "what keeps workers apart: threads, or processes",
  },
  rounds: {
    kind: "integer",
    maximum: 1000,
    default: 5,
    help: "rounds, each of which measures everything once",
  },
  out: { kind: "path", value: "FILE", help: "the profile" },
  "from-trace": {
    kind: "path",
    value: "FILE",
    help: "measure nothing: take costs from a trace that troupe train --trace has written",
  },
  json: { kind: "switch", help: "print the profile as JSON; check: one object a line" },
} as const;

/** Every flag of `troupe profile`. */
export const PROFILE_FLAGS = { ...MODEL, ...MEASURING, ...COMMON_FLAGS } as const;

/** The values of the flags of `troupe profile`. */
export type ProfileFlags = FlagValues<typeof PROFILE_FLAGS>;

/** The declaration of `troupe profile`. */
export const PROFILE_SYNTAX: CommandSyntax = {
  name: "profile",
  summary: "measures what layers, messages and steps cost on this machine",
  usage: [
    "--out FILE [flags]",
    "--from-trace FILE --out FILE [flags]",
    "check [--json] [flags]",
  ],
  about: [
    "Measures what each kind of layer takes for one micro-batch while 1, 2, 4 … workers compute at",
    "once, the latency and bandwidth of messages between them, the optimizer, and what begins and",
    "ends a step. The file is what predictions are made from.",
    "",
    "check predicts steps of some runs and measures them, in one go: 12 or more configurations of",
    "schedules, workers, sizes of a micro-batch, recomputation and uneven stages.",
  ],
  words: ["check"],
  groups: [
    { title: "The model whose layers are measured:", flags: MODEL },
    { title: "How:", flags: { ...MEASURING, ...COMMON_FLAGS } },
  ],
  notes: [
    "Other programs make all that is measured slower: have none.",
    "",
    "Exit codes: 0 done, for check: median error within 5 %, each within 10 % or the measured spread",
    "where that is larger; 1 a check with larger errors, or what failed; 2 bad input.",
  ],
};
