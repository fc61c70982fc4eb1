/**
 * The same model in another library for training in JavaScript, beside Troupe's devices.
 *
 * @module
 */

import { compileModel, elementCount, initialValues } from "../kernels/mod.ts";
import { benchDevices } from "./support/devices.ts";
import { openBenchStage } from "./kernels.ts";
import type { Row } from "./support/row.ts";
import { interleave, spreadOf } from "./support/timing.ts";
import { benchBatches, benchModel, CONFIG, MICRO_BATCH, TOKENS } from "./support/workload.ts";

/** Never in deno.json: only this benchmark fetches it, and only when it runs. */
const JAX = "npm:@jax-js/jax@0.1.25";

const PEER = "jax-js, wasm";

/** A program that takes a step when it is told to. */
interface Peer extends AsyncDisposable {
  step(): Promise<{ readonly ms: number; readonly loss: number }>;
}

/** Writes the first weights and the micro-batch for the other program. */
async function writeModel(folder: string): Promise<void> {
  const { parameters } = compileModel(benchModel(), "none");
  const size = parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  const weights = new Float32Array(size);
  let offset = 0;
  for (const { name, spec } of parameters) {
    weights.set(initialValues(spec, name, 1), offset);
    offset += elementCount(spec.shape);
  }
  await Deno.writeFile(`${folder}/weights.f32`, new Uint8Array(weights.buffer));
  const [fields] = benchBatches(1);
  const model = {
    config: CONFIG,
    microBatch: MICRO_BATCH,
    parameters: parameters.map(({ name, shape }) => ({ name, shape })),
    ids: [...fields!.ids],
    targets: [...fields!.targets],
  };
  await Deno.writeTextFile(`${folder}/model.json`, JSON.stringify(model));
}

/** The sentence in which Deno says why a program ended. */
function reasonIn(text: string): string {
  const lines = text.trim().split("\n");
  const line = lines.find((one) => one.startsWith("error: ")) ?? (lines[0] || "no reason");
  return line.replace(/^error: (Uncaught \(in promise\) )?(\w*Error: )?/, "");
}

/** Starts jax-js in a process of its own. */
async function openJax(): Promise<Peer> {
  const folder = await Deno.makeTempDir({ prefix: "troupe-bench-" });
  await writeModel(folder);
  const isolated = ["--quiet", "--no-lock", "--no-config", "--node-modules-dir=none"];
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-prompt",
      "--allow-read",
      ...isolated,
      new URL("./peers/jax_gpt.ts", import.meta.url).href,
      JAX,
      folder,
    ],
    env: { NO_COLOR: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const input = child.stdin.getWriter();
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const problem = new Response(child.stderr).text();
  return {
    async step() {
      await input.write(new TextEncoder().encode("\n")).catch(() => {});
      let line = "";
      while (!line.endsWith("\n")) {
        const { value, done } = await lines.read();
        if (done) throw new Error(`Cannot run ${JAX}: ${reasonIn(await problem)}`);
        line += value;
      }
      return JSON.parse(line);
    },
    async [Symbol.asyncDispose]() {
      await input.close().catch(() => {});
      await child.status;
      await lines.cancel();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

/** Loss of the first step, in which jax-js compiles; or why there is none. */
async function firstLoss(jax: Peer): Promise<number | string> {
  try {
    return (await jax.step()).loss;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Measures the peer between Troupe's devices; where it cannot be had, its row says why. */
export async function peersBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices();
  await using jax = await openJax();
  const stages = await Promise.all(names.map(openBenchStage));
  const losses = await Promise.all(stages.map(({ forwardBackward }) => forwardBackward()));
  const peerLoss = await firstLoss(jax), isThere = typeof peerLoss === "number";
  const cases: Record<string, () => Promise<number | void>> = Object.fromEntries(
    names.map((name, i) => [name, async () => void await stages[i]!.forwardBackward()]),
  );
  if (isThere) cases[PEER] = async () => (await jax.step()).ms;
  const rounds = await interleave(cases, { rounds: 11, isAlone: false });
  for (const { device } of stages) device.close();
  const tokensPerSecond = (name: string): Row => ({
    name: `${name}: forward and backward`,
    unit: "tokens/s",
    measured: spreadOf(rounds, (ms) => TOKENS / (ms[name]! / 1000)),
  });
  const ours = [...missing, ...names.map(tokensPerSecond)];
  if (!isThere) return [...ours, { name: PEER, unit: "", note: peerLoss }];
  const apart = Math.max(...losses.map((loss) => Math.abs(loss - peerLoss)));
  return [
    ...ours,
    { ...tokensPerSecond(PEER), note: `losses differ by ${apart.toExponential(1)}` },
    ...names.map((name): Row => ({
      name: `${name} ÷ ${PEER}`,
      unit: "×",
      measured: spreadOf(rounds, (ms) => ms[PEER]! / ms[name]!),
    })),
  ];
}
