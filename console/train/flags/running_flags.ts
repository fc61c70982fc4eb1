/**
 * The flags of `troupe train` that say how a run runs.
 *
 * @module
 */

import { THREADS_MAX } from "../../../actors/run/options/sizes.ts";
import { SNAPSHOT_PLACES } from "../../../actors/run/recovery/snapshots.ts";
import { builtInNames } from "../../../actors/registry/mod.ts";
import { RECOMPUTE_POLICIES } from "../../../kernels/mod.ts";
import { DASHBOARD_FLAGS } from "../../dashboard/dashboard_flags.ts";
import { COMMON_FLAGS } from "../../flags/command_syntax.ts";
import { DEVICE_FLAG } from "../../flags/device_flag.ts";
import {
  readLink,
  readNumbers,
  readSize,
  readStepRange,
  readThreads,
} from "../../flags/quantities.ts";
import { PART } from "./model_flags.ts";

/** How it runs: these may change when a run goes on. */
export const RUNNING_FLAGS = {
  steps: {
    kind: "integer",
    aliases: ["max_iters", "max_steps"],
    default: 600,
    help: "optimizer steps of the whole run",
  },
  device: DEVICE_FLAG,
  adapters: {
    kind: "own",
    value: "N,N",
    read: readNumbers,
    must: "numbers from 0 with commas between them, such as 0,1",
    otherwise: "all GPUs",
    help: "webgpu: those on which the workers compute, in turn",
  },
  threads: {
    kind: "own",
    value: "N|auto",
    read: readThreads,
    must: `a whole number from 1 to ${THREADS_MAX}, or auto`,
    otherwise: "1",
    help: "native: threads of each worker within an operation; auto: its share of the cores",
  },
  runtime: {
    kind: "choice",
    choices: ["workers", "local", "serial", "mpi"],
    default: "workers",
    help: "where actors run",
  },
  "mpi-library": { kind: "path", value: "FILE", help: "MPI's library, if not the launcher's" },
  map: {
    kind: "own",
    value: "R0,R1,…",
    read: readNumbers,
    must: "a rank for each worker, from 0, such as 0,0,1,1",
    help: "the MPI rank of each worker",
  },
  "mpi-interface": {
    kind: "text",
    value: "INTERFACE",
    help: "where MPI ranks hear of messages: an interface, address or network",
  },
  gather: {
    kind: "switch",
    help: "MPI's rank 0 reads and writes all weights: for hosts that share no folder",
  },
  isolation: {
    kind: "choice",
    choices: ["worker", "process"],
    otherwise: "worker; process on webgpu",
    help: "what keeps workers apart: threads, or processes that can be killed",
  },
  supervisor: {
    kind: "part",
    choices: builtInNames("supervisor"),
    value: PART,
    default: "pipeline",
    help: "what supervises the workers: Troupe's own, or one of your own",
  },
  retries: {
    kind: "integer",
    minimum: 0,
    default: 3,
    help: "failures of each worker in ten minutes that the run outlives",
  },
  snapshots: {
    kind: "choice",
    choices: SNAPSHOT_PLACES,
    otherwise: "memory up to 256 MiB of weights and moments, else disk",
    help: "where the state lies that the run goes on from when a worker fails",
  },
  "stall-timeout": {
    kind: "integer",
    value: "SECONDS",
    maximum: 2_000_000, // a timer counts to 2^31 ms
    default: 60,
    help: "time in which no worker is at work after which the run counts as stalled",
  },
  journal: { kind: "path", value: "FILE", help: "write down every message and step of the actors" },
  "journal-messages": { kind: "switch", help: "keep the messages too, to replay a worker alone" },
  "journal-full": {
    kind: "choice",
    choices: ["go-on", "stop"],
    default: "go-on",
    help: "full disk: no more journal, or a checkpoint and the end",
  },
  trace: {
    kind: "path",
    value: "FILE",
    help: "write when each action ran and what was waited for, for Perfetto or troupe trace",
  },
  "trace-steps": {
    kind: "own",
    value: "A-B",
    read: readStepRange,
    must: "a step or a range of steps such as 10, 100-200 or 100-",
    otherwise: "all; the file has at most 256 MiB",
    help: "steps that a trace has",
  },
  recompute: {
    kind: "choice",
    choices: RECOMPUTE_POLICIES,
    default: "none",
    help: "activations computed again in the backward",
  },
  "recompute-interval": {
    kind: "integer",
    value: "AC",
    help: "keep only the input of every AC blocks or layers",
  },
  offload: { kind: "switch", help: "master weights and moments stay in host memory" },
  memory: { kind: "switch", help: "show the memory of each worker, planned and used" },
  "memory-limit": {
    kind: "own",
    value: "SIZE",
    read: readSize,
    must: "a size of at least one byte such as 512MiB, 2GiB or 1000000",
    help: "refuse a run that needs more on a worker",
  },
  sync: {
    kind: "choice",
    choices: ["end", "eager", "eager-opt"],
    default: "end",
    help: "when the all-reduce of a stage starts",
  },
  "bucket-size": { kind: "integer", value: "E", help: "elements of an optimizer bucket" },
  coarsening: {
    kind: "integer",
    value: "K",
    otherwise: "4",
    help: "buckets of a chunk of the all-reduce",
  },
  "emulate-link": {
    kind: "own",
    value: "ALPHA_US,GBPS",
    read: readLink,
    must: "a latency in µs from 0 to 6e7, a comma and GB/s above 0, such as 50,1.25",
    help: "delay messages as such a link would: µs, GB/s",
  },
  weights: {
    kind: "path",
    value: "PATH",
    help:
      "first weights: a GPT-2's folder of Hugging Face's, with its sizes; or safetensors, an index",
  },
  resume: {
    kind: "path",
    aliases: ["resume_from_checkpoint"],
    value: "RUN",
    help: "go on from the newest checkpoint of a run, by its folder or its name below runs/",
  },
  out: {
    kind: "path",
    aliases: ["out_dir", "output_dir"],
    value: "DIR",
    otherwise: "runs/MODEL-1, -2 …; that of --resume; none with --json",
    help: "the run's folder: checkpoints, run.json, metrics.jsonl",
  },
  overwrite: {
    kind: "switch",
    help: "remove what another run has left in the folder; with --resume, what came later",
  },
  "checkpoint-every": {
    kind: "integer",
    aliases: ["save_steps"],
    value: "K",
    otherwise: "one checkpoint, at the end",
    help: "steps",
  },
  keep: {
    kind: "integer",
    aliases: ["save_total_limit"],
    value: "M",
    otherwise: "all",
    help: "newest checkpoints that stay",
  },
  "keep-best": {
    kind: "switch",
    help: "write a checkpoint when held-out loss is at its best, and keep it: best.json names it",
  },
  "eval-every": {
    kind: "integer",
    aliases: ["eval_steps"],
    value: "K",
    otherwise: "50; not with --json or --tokens",
    help: "steps",
  },
  patience: {
    kind: "integer",
    aliases: ["early_stopping_patience"],
    value: "K",
    otherwise: "none",
    help: "end the run after K evaluations that were no better than the best",
  },
  ...DASHBOARD_FLAGS,
  log: {
    kind: "choice",
    aliases: ["report_to"],
    choices: ["none", "tensorboard"],
    default: "none",
    help: "for whom else what is measured is written to the folder of the run",
  },
  json: { kind: "switch", help: "one JSON object a line instead of words" },
  config: {
    kind: "path",
    value: "FILE",
    help: "flags in JSON, JSONC or TOML, or a checkpoint's config.json; those typed here win",
  },
  ...COMMON_FLAGS,
} as const;
