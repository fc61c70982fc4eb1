/**
 * jax-js, another library for training in JavaScript, in a process of its own.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { compileModel } from "../../kernels/mod.ts";
import { benchBatches, benchModel, firstWeights, type Workload } from "../support/workload.ts";

/** Never in deno.json: only a benchmark fetches it, and only when it runs. */
const JAX = "npm:@jax-js/jax@0.1.25";

/** The first step compiles; on software in place of a GPU that alone takes half a minute. */
const STEP_LIMIT_MS = 120_000;

/** A program that takes a step when it is told to. */
export interface Peer extends AsyncDisposable {
  step(): Promise<{ readonly ms: number; readonly loss: number }>;
}

/** Writes the first weights and the micro-batch for the other program. */
async function writeModel(folder: string, workload: Workload): Promise<void> {
  const { parameters } = compileModel(benchModel(workload), "none");
  const file = await Deno.create(`${folder}/weights.f32`), writer = file.writable.getWriter();
  for (const values of firstWeights(workload).values()) {
    await writer.write(new Uint8Array(values.buffer as ArrayBuffer));
  }
  await writer.close();
  const [fields] = benchBatches(1, 1, workload);
  const model = {
    ...workload,
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

/**
 * Starts jax-js with the weights and the micro-batch of a workload.
 *
 * @param environment what makes a process use an adapter.
 */
export async function openJax(
  backend: "wasm" | "webgpu",
  workload: Workload,
  environment: Readonly<Record<string, string>> = {},
): Promise<Peer> {
  const folder = await Deno.makeTempDir({ prefix: "troupe-bench-" });
  await writeModel(folder, workload);
  const isolated = ["--quiet", "--no-lock", "--no-config", "--node-modules-dir=none"];
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-prompt",
      "--allow-read",
      ...isolated,
      new URL("./jax_gpt.ts", import.meta.url).href,
      JAX,
      backend,
      folder,
    ],
    env: { ...environment, NO_COLOR: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const input = child.stdin.getWriter();
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const problem = new Response(child.stderr).text();
  const answer = async () => {
    let line = "";
    while (!line.endsWith("\n")) {
      const { value, done } = await lines.read();
      if (done) throw new Error(`Cannot run ${JAX}: ${reasonIn(await problem)}`);
      line += value;
    }
    return JSON.parse(line);
  };
  return {
    async step() {
      await input.write(new TextEncoder().encode("\n")).catch(() => {});
      return await deadline(answer(), STEP_LIMIT_MS);
    },
    async [Symbol.asyncDispose]() {
      await input.close().catch(() => {});
      try {
        child.kill();
      } catch {
        // It has ended by itself.
      }
      await child.status;
      await lines.cancel();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

/** Loss of the first step, in which jax-js compiles; or why there is none. */
export async function firstLoss(jax: Peer): Promise<number | string> {
  try {
    return (await jax.step()).loss;
  } catch (error) {
    return (error as Error).message;
  }
}
