/**
 * Another library as a program of its own, that takes a step when it is asked to.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { ADAMW_DEFAULTS, compileModel, elementCount } from "../../kernels/mod.ts";
import {
  benchBatches,
  benchModel,
  firstWeights,
  LEARNING_RATE,
  type Workload,
} from "../support/workload.ts";
import { talkTo } from "../support/lines.ts";

/** The first answer compiles, or tries several ways, which takes minutes of a large model. */
const ANSWER_LIMIT_MS = 600_000;

/** A step that another program took. */
export interface PeerStep {
  /** As it measured it itself. */
  readonly ms: number;
  /** The mean of its tokens. */
  readonly loss: number;
}

/** A program that takes a step when it is told to. */
export interface Peer extends AsyncDisposable {
  step(): Promise<PeerStep>;
}

/** How a program is started. */
export interface PeerCommand {
  /** The library, as errors call it. */
  readonly library: string;
  readonly command: string;
  /** Its arguments before the folder of {@linkcode writeModel}. */
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** A program that answers questions. */
export interface PeerProgram extends AsyncDisposable {
  /** @throws {Error} saying why it has ended. */
  ask<Answer>(question: string): Promise<Answer>;
}

/**
 * Writes what a program needs to train as Troupe does: sizes and AdamW's settings, the first weights
 * one behind the other, and micro-batches.
 */
async function writeModel(
  folder: string,
  workload: Workload,
  microBatches: number,
): Promise<void> {
  const { parameters } = compileModel(benchModel(workload), "none");
  const file = await Deno.create(`${folder}/weights.f32`), writer = file.writable.getWriter();
  for (const values of firstWeights(workload).values()) {
    await writer.write(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  }
  await writer.close();
  const model = {
    ...workload,
    parameters: parameters.map(({ name, shape }) => ({ name, shape, size: elementCount(shape) })),
    batches: benchBatches(microBatches, 1, workload)
      .map(({ ids, targets }) => ({ ids: [...ids], targets: [...targets] })),
    optimizer: { ...ADAMW_DEFAULTS, learningRate: LEARNING_RATE },
  };
  await Deno.writeTextFile(`${folder}/model.json`, JSON.stringify(model));
}

/** The sentence in which Deno or Python say why a program ended; empty where they say nothing. */
function reasonIn(text: string): string {
  const lines = text.trim().split("\n");
  const line = lines.find((one) => one.startsWith("error: ")) ??
    lines.findLast((one) => /^\w*(Error|Exception): /.test(one)) ?? lines[0]!;
  return line.replace(/^error: (Uncaught \(in promise\) )?(\w*Error: )?/, "");
}

/** Starts a program on the model and `microBatches` micro-batches of a workload. */
export async function openProgram(
  { library, command, args, env = {} }: PeerCommand,
  workload: Workload,
  microBatches: number,
): Promise<PeerProgram> {
  const folder = await Deno.makeTempDir({ prefix: "troupe-bench-" });
  await writeModel(folder, workload, microBatches);
  const child = new Deno.Command(command, {
    args: [...args, folder],
    env: { ...env, NO_COLOR: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const problem = new Response(child.stderr).text(), { ask, close } = talkTo(child);
  return {
    ask: <Answer>(question: string) =>
      deadline(ask<Answer>(question), ANSWER_LIMIT_MS).catch(async (error) => {
        kill(child); // it may hang
        const reason = reasonIn(await problem) || (error as Error).message;
        throw new Error(`Cannot run ${library}: ${reason}`);
      }),
    async [Symbol.asyncDispose]() {
      kill(child);
      await close();
      await problem;
      await Deno.remove(folder, { recursive: true });
    },
  };
}

/** Ends a program, if it has not ended by itself. */
function kill(child: Deno.ChildProcess): void {
  try {
    child.kill();
  } catch {
    // It has.
  }
}
