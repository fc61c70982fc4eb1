/**
 * Models of random sizes on the GPU and on the device that judges: losses, gradients and weights
 * after a step must be close, a backward that is split must have the bits of one that is not, and a
 * second run those of the first. Odd sizes, and sizes about those of the GPU's workgroups.
 *
 * @module
 */

import assert from "node:assert/strict";
import { parseArgs } from "@std/cli/parse-args";
import { print } from "../../console/print.ts";
import {
  type Batch,
  compileModel,
  type DeviceName,
  gpt2,
  mlp,
  type Model,
  openDevice,
  type OptimizerOptions,
  type Recompute,
  RECOMPUTE_POLICIES,
  substream,
} from "../../kernels/mod.ts";
import "../gpu.ts";
import { assertSameBits, drawTokens, openStages, train } from "../kernels/stage/stage_runs.ts";

/** Relative to the norm of what is right. */
const BOUND = 2e-5;

/** AdamW would step by the learning rate where a gradient is nothing but rounding. */
const SGD: OptimizerOptions = { kind: "sgd", momentum: 0.9, weightDecay: 0.1 };
const LEARNING_RATE = 0.1;

type Draw = <T>(items: readonly T[]) => T;

/** What is computed, and what of. */
interface Case {
  readonly what: string;
  readonly model: Model;
  readonly batches: readonly Batch[];
}

function drawGpt(draw: Draw): Case {
  const heads = draw([1, 2, 3, 4]), hidden = heads * draw([1, 4, 7, 8, 16, 33]);
  const config = {
    ...{ layers: draw([1, 2]), hidden, heads },
    ...{ seq: draw([1, 2, 7, 8, 33, 64, 65]), vocab: draw([2, 31, 64, 259, 300]) },
    tie: draw([false, true]),
  };
  const microBatch = draw([1, 2, 3, 5]);
  return {
    what: `GPT ${JSON.stringify({ ...config, microBatch })}`,
    model: gpt2(config, microBatch),
    batches: drawTokens(2, microBatch * config.seq, config.vocab),
  };
}

function drawMlp(draw: Draw, number: () => number): Case {
  const sizes = [1, 2, 3, 5, 16, 31, 33, 64, 65, 127, 257];
  const config = {
    ...{ inputs: draw([...sizes, 1025]), hidden: draw(sizes) },
    ...{ layers: draw([0, 1, 2, 3]) + 1, classes: draw([2, 3, 10, 257]) },
  };
  const microBatch = draw([1, 3, 8, 33, 65, 130]);
  const batches = Array.from({ length: 2 }, () => ({
    features: Float32Array.from({ length: microBatch * config.inputs }, () => number()),
    labels: Int32Array.from({ length: microBatch }, () => draw([-1, 0, 1])),
  }));
  return {
    what: `MLP ${JSON.stringify({ ...config, microBatch })}`,
    model: mlp(config, microBatch),
    batches,
  };
}

/** Losses, gradients, and the weights after a step. */
async function trained(name: DeviceName, { model, batches }: Case, recompute: Recompute) {
  const device = await openDevice(name);
  try {
    const program = compileModel(model, recompute), results: Map<string, Float32Array>[] = [];
    for (const backward of ["whole", "split"] as const) {
      const [stage] = await openStages(device, program, 1, { backward, optimizer: SGD });
      const numbers = await train([stage!], batches, backward);
      await stage!.optimize(1, LEARNING_RATE);
      for (const [key, values] of (await stage!.save()).weights) numbers.set(`new ${key}`, values);
      results.push(numbers);
    }
    const [whole, split] = results as [typeof results[0], typeof results[0]];
    assertSameBits(split, whole, "split backward");
    return whole;
  } finally {
    device.close();
  }
}

const norm = (values: Float32Array) => Math.sqrt(values.reduce((sum, x) => sum + x * x, 0));

/** The largest difference of an array, relative to its norm or a thousandth of the largest norm. */
function distance(
  received: ReadonlyMap<string, Float32Array>,
  expected: ReadonlyMap<string, Float32Array>,
): { name: string; error: number } {
  const least = Math.max(...Array.from(expected.values(), norm)) / 1000;
  let worst = { name: "nothing", error: 0 };
  for (const [name, wanted] of expected) {
    const difference = norm(received.get(name)!.map((x, i) => x - wanted[i]!));
    const error = difference / Math.max(norm(wanted), least);
    if (!(error <= worst.error)) worst = { name, error };
  }
  return worst;
}

/** One case; answers how far the GPU is off. */
async function run(seed: number): Promise<string> {
  const generator = substream(seed, "gpu oracle");
  const draw: Draw = (items) => items[(generator.next() >>> 0) % items.length]!;
  const one = draw([drawGpt, drawMlp])(draw, () => (generator.next() | 0) / 2 ** 31);
  const recompute = draw(RECOMPUTE_POLICIES), what = `${one.what}, recompute ${recompute}`;
  try {
    const expected = await trained("reference", one, recompute);
    const received = await trained("webgpu", one, recompute);
    const { name, error } = distance(received, expected);
    assert.ok(error <= BOUND, `${name} is ${error} off`);
    assertSameBits(await trained("webgpu", one, recompute), received, "a second run");
    return `${what}: ${error.toExponential(1)} (${name})`;
  } catch (error) {
    throw new Error(`${what}: ${(error as Error).message}`, { cause: error });
  }
}

if (import.meta.main) {
  const flags = parseArgs(Deno.args, {
    string: ["cases", "seed"],
    default: { cases: "60", seed: "0" },
  });
  // Open to the end: shaders that were compiled for one case serve the others.
  const kept = await openDevice("webgpu").catch((error: Error) => print(error.message));
  const cases = kept ? Number(flags.cases) : 0, first = Number(flags.seed);
  let survived = 0;
  for (let seed = first; seed < first + cases; seed++) {
    try {
      print(`seed ${seed}: ${await run(seed)}`);
      survived++;
    } catch (error) {
      print(`seed ${seed} failed: ${(error as Error).message}`);
    }
  }
  kept?.close();
  print(`gpu_oracle: ${cases} cases, ${survived} survived`);
  Deno.exit(survived === cases ? 0 : 1);
}
