/** Bad input: told in one sentence before anything is written, exit code 2. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { gpuTest } from "../../gpu.ts";
import {
  inFolder,
  refusal,
  runGenerate,
  runTrain,
  someTokens,
  TINY,
  TINY_MODEL,
  writeTokens,
} from "../command.ts";

/** What is wrong with the flags, and what the refusal says of it. */
const FLAGS: readonly [string, RegExp][] = [
  ["--nonesuch 3", /--nonesuch is not one of them; run with --help to see them all/],
  ["-x", /-x is not one of them; run with --help/],
  ["corpus.txt", /every argument must be a flag, received "corpus.txt"/],
  ["--steps", /--steps must have a value/],
  ["--steps --json", /--steps must have a value/],
  ["--steps ten", /--steps: it must be a whole number from 1, received "ten"/],
  ["--steps 0", /--steps: it must be a whole number from 1, received "0"/],
  ["--steps 1.5", /--steps: it must be a whole number from 1, received "1.5"/],
  ["--lr fast", /--lr: it must be a number from 0, received "fast"/],
  ["--lr -0.1", /--lr: it must be a number from 0, received "-0.1"/],
  ["--lr Infinity", /--lr: it must be a number from 0, received "Infinity"/],
  ["--beta1 1", /--beta1: it must be a number from 0 and below 1, received "1"/],
  ["--warmup -3", /--warmup: it must be a whole number from 0, received "-3"/],
  ["--micro-batches 0", /--micro-batches: it must be a whole number from 1/],
  [
    "--device gpu",
    /--device: it must be one of auto, native, webgpu, webgpu:N, wasm, reference, received "gpu"/,
  ],
