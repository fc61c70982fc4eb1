/** Runs the commands as users do, on models so small that a run takes a fraction of a second. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { HANG_LIMIT_MS } from "../hang_limit.ts";
import { inOneLine, printError } from "../../console/terminal.ts";
import { trainCommand } from "../../console/train/train.ts";
import { troupe } from "../../console/mod.ts";
import { RUN_FILES } from "../../actors/run_folder/metrics_file.ts";
import { namesIn } from "../in_folder.ts";

/** The repository. */
export const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** Flags of the smallest GPT, on the reference device. */
export const TINY_MODEL =
  "--layers 1 --hidden 16 --heads 2 --seq 8 --micro-batch-size 2 --device reference".split(" ");

/** The same with two micro-batches a step. */
export const TINY = [...TINY_MODEL, "--micro-batches", "2"];

/** Environment without colours and without output of Deno itself. */
export const ENVIRONMENT = { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" };

/** Variables of a process. */
export type Environment = Readonly<Record<string, string>>;

/** Result of a command. */
export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program in a process, in the repository unless another folder is named. */
export async function runProgram(
  program: string,
  args: readonly string[],
  { cwd = ROOT, env = {} }: { cwd?: string; env?: Environment } = {},
): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command(program, {
    ...{ args: [...args], cwd, env: { ...ENVIRONMENT, ...env }, stdin: "null" },
    signal: AbortSignal.timeout(HANG_LIMIT_MS),
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/** Runs a script in a separate process. */
export const runScript = (script: string, args: readonly string[], flags: readonly string[] = []) =>
  runProgram(Deno.execPath(), ["run", "-A", ...flags, script, ...args]);

/**
 * Runs a command where no file may grow beyond some blocks of 512 bytes: writing fails as on a full
 * disk. The signal for too large files is ignored from the start, because it would end Deno when it
 * opens its own caches.
 */
export const runWithin = (blocks: number, args: readonly string[]) => {
  const limited = `trap '' XFSZ; ulimit -f ${blocks}; exec "$0" run -A cli.ts "$@"`;
  return runProgram("sh", ["-c", limited, Deno.execPath(), ...args]);
};

/** Splits a command line into words: a value is one word or part of one, a list is several words. */
export function words(
  parts: TemplateStringsArray,
  ...values: readonly (string | number | readonly string[])[]
): string[] {
  const text = parts.reduce((text, part, i) => `${text}\0${i - 1}\0${part}`).trim();
  return text.split(/\s+/).filter((word) => word !== "").flatMap((word) => {
    const list = values[Number(/^\0(\d+)\0$/.exec(word)?.[1] ?? NaN)];
    if (typeof list === "object") return [...list];
    return word.replaceAll(/\0(\d+)\0/g, (_, i) => String(values[i]));
  });
}

/** Reads a file of JSON. */
export const readJson = async (...path: string[]) =>
  JSON.parse(await Deno.readTextFile(join(...path)));

/** Runs any command of `deno task troupe` in a separate process. */
export const runTroupe = (args: readonly string[], env: Environment = {}) =>
  runProgram(Deno.execPath(), ["run", "-A", "cli.ts", ...args], { env });

/** Runs `deno task train`. */
export const runTrain = (args: readonly string[], env?: Environment) =>
  runTroupe(["train", ...args], env);

/** Runs `deno task generate`. */
export const runGenerate = (args: readonly string[]) => runTroupe(["generate", ...args]);

/** Captures standard output or standard error until it is released. */
export class Capture implements Disposable {
  text = "";
  readonly #to;
  readonly #decoder = new TextDecoder();

  /** @param heard gets all that was written so far, each time. */
  constructor(to: { writeSync(data: Uint8Array): number }, heard = (_text: string): void => {}) {
    this.#to = to;
    to.writeSync = (data) => {
      this.text += this.#decoder.decode(data, { stream: true });
      heard(this.text);
      return data.length;
    };
  }

  [Symbol.dispose](): void {
    Reflect.deleteProperty(this.#to, "writeSync");
  }
}

/** Runs a command in this process, which takes a tenth of the time of a new process. */
export async function runHere(args: readonly string[]): Promise<Outcome> {
  using stdout = new Capture(Deno.stdout);
  using stderr = new Capture(Deno.stderr);
  let hasBegun = false;
  const begin = (finishing?: string) => void (hasBegun ||= finishing !== "");
  const code = await troupe(args, { begin, signal: new AbortController().signal }).catch(
    (error: Error & { exitCode?: number }) => {
      printError(hasBegun ? error.message : inOneLine(error.message));
      return error.exitCode ?? (hasBegun ? 1 : 2);
    },
  );
  return { code, stdout: stdout.text, stderr: stderr.text };
}

/** Runs a command in this process, which must succeed; returns its output. */
export async function printedHere(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runHere(args);
  assert.equal(code, 0, `${args.join(" ")}: ${stdout}${stderr}`);
  return stdout;
}

/**
 * Runs a command in this process and expects one sentence about bad input, and no output.
 *
 * @returns the sentence, after the exit code if that is not 2.
 */
export async function refusalHere(args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runHere(args);
  assert.ok(code !== 0 && stdout === "", `${args.join(" ")}: ${stdout}${stderr}`);
  assert.match(stderr, /^[^\n]+\n$/);
  return `${code === 2 ? "" : `${code}: `}${stderr.trimEnd()}`;
}

/** Expects a refusal with this sentence. */
export const refusedHere = async (args: readonly string[], sentence: RegExp) =>
  assert.match(await refusalHere(args), sentence, args.join(" "));

/** One line of `--json`. */
export type Line = Readonly<Record<string, unknown>>;

/** The lines of a text that ends with a line feed. */
export function jsonLines(text: string): Line[] {
  assert.ok(text.endsWith("\n"), "the last line must be complete");
  return text.slice(0, -1).split("\n").map((line) => JSON.parse(line));
}

/** Trains with `--json`; the exit code must be 0. */
export async function trainJson(args: readonly string[]): Promise<{ lines: Line[]; last: Line }> {
  const { code, stdout, stderr } = await runTrain([...args, "--json"]);
  assert.equal(code, 0, stderr);
  const lines = jsonLines(stdout);
  return { lines, last: lines.at(-1)! };
}

/** Trains in this process with `--json`; actors run in this thread unless `args` name a runtime. */
export async function trainHere(args: readonly string[]): Promise<{ lines: Line[]; last: Line }> {
  const runtime = args.includes("--runtime") ? [] : ["--runtime", "local"];
  const lines = jsonLines(await printedHere("train", ...args, ...runtime, "--json"));
  return { lines, last: lines.at(-1)! };
}

/** The losses of the steps of a run. */
export const lossesOf = (lines: readonly Line[]): number[] =>
  lines.flatMap(({ loss }) => typeof loss === "number" ? [loss] : []);

/** Compares the losses of a run with those of PyTorch. */
export function assertLosses(lines: readonly Line[], expected: readonly number[]): void {
  const losses = lossesOf(lines);
  assert.equal(losses.length, expected.length);
  const worst = Math.max(...losses.map((loss, i) => Math.abs(loss / expected[i]! - 1)));
  assert.ok(worst < 1e-5, `${worst} off`);
}

/** Runs the program of Hugging Face's fixture in a Python with PyTorch; returns the JSON that it prints. */
export async function printedByTorch(python: string | undefined, ...args: readonly string[]) {
  const script = join(ROOT, "tests/fixtures/make_hugging_face.py");
  const env = { OMP_NUM_THREADS: "1", PYTHONDONTWRITEBYTECODE: "1" };
  const { code, stdout, stderr } = await runProgram(python!, [script, ...args], { env });
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
}

/** Exports a run or a model in a format; returns the path. */
export async function exportTo(format: string, from: string, out: string, ...more: string[]) {
  await printedHere("export", from, "--format", format, "--out", out, ...more);
  return out;
}

/** Returns the results that do not depend on the run: losses, norms and weights. */
export function bitsOf(lines: readonly Line[], fromStep = 1): unknown[] {
  return [
    ...lines.filter(({ loss, step }) => loss !== undefined && (step as number) >= fromStep)
      .map(({ step, loss, gradNorm }) => [step, loss, gradNorm]),
    lines.at(-1)!.weightsHash,
  ];
}

/**
 * Trains in this process and expects bad input to be refused in one sentence, before the run
 * starts.
 *
 * @returns the sentence.
 */
export async function refusal(args: readonly string[]): Promise<string> {
  const context = {
    begin: () => assert.fail("a run with bad input must not start"),
    signal: new AbortController().signal,
  };
  const error = await trainCommand([...args], context).then(
    () => assert.fail("bad input must be refused"),
    (error) => error,
  );
  if (error instanceof assert.AssertionError) throw error;
  assert.match(error.message, /^Cannot [^\n]+$/);
  return error.message;
}

/** Trains in this process and expects a refusal with this sentence before the run starts. */
export const refuses = async (args: readonly string[], sentence: RegExp) =>
  assert.match(await refusal(args), sentence);

export { folderTest, inFolder } from "../in_folder.ts";

/** Returns the sorted names in the folder of a run, without the files that every run has. */
export const savedIn = async (out: string): Promise<string[]> =>
  (await namesIn(out)).filter((name) => !Object.values<string>(RUN_FILES).includes(name));

/** Writes tokens as `--tokens` reads them: little-endian, 16 bits each. */
export async function writeTokens(folder: string, tokens: Iterable<number>, name = "tokens.bin") {
  const ids = [...tokens], view = new DataView(new ArrayBuffer(2 * ids.length));
  ids.forEach((id, i) => view.setUint16(2 * i, id, true));
  const path = join(folder, name);
  await Deno.writeFile(path, new Uint8Array(view.buffer));
  return path;
}

/** Reproducible pseudo-random ids. */
export const someTokens = (count: number, vocabulary = 256): number[] =>
  Array.from({ length: count }, (_, i) => (i * i * 31 + i * 7) % 65521 % vocabulary);
