/**
 * Untrusted files with random changes: `run.json` for the dashboard and the commands about runs,
 * `tokenizer.json`, and ONNX files, each N times.
 *
 *     deno task campaign inputs [--cases N] [--seed N]
 *
 * Each is used or refused in one sentence, within five seconds, and nothing is written but the
 * folder of a run. One case in twenty goes through `train`.
 *
 * @module
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { followRun } from "../../console/dashboard/follow.ts";
import { troupe } from "../../console/mod.ts";
import { print } from "../../console/terminal.ts";
import { bytesTokenizerJson } from "../../kernels/data/tokenizer.ts";
import { compileModel, fromOnnx, mlpOnnx, parseTokenizer } from "../../kernels/mod.ts";
import { describeOnnx } from "../../kernels/onnx/import_model.ts";
import { ModelProtoSchema } from "../../kernels/onnx/onnx_pb.ts";
import { readJson, runHere, TINY } from "../console/command.ts";
import SMALL from "../kernels/data/small_tokenizer.json" with { type: "json" };
import { onnxPath } from "../onnx.ts";
import { quietly } from "../package/commands_entry.ts";
import { type Case, type Draw, drawing, runCampaign } from "./cases_helper.ts";

/** Time limit for a file. */
const MS_MAX = 5000;

let draw: Draw;
const oneOf = <T>(values: readonly T[]): T => values[draw(values.length)]!;

/** Messages of the engine or its libraries, which no refusal may contain. */
const RAW =
  /undefined|not a function|not iterable|Cannot (read|set) propert|Cannot (convert|mix|destructure)|call stack|Invalid (array|string|typed|count)|Array buffer|out of (range|bounds)|\[object|circular/i;

function assertSentence(text: string): void {
  assert.match(text, /^Cannot [^\n]+$/);
  assert.doesNotMatch(text, RAW);
  assert.ok(text.length < 2000, `a sentence of ${text.length} characters`);
}

/** Placeholder of deeply nested lists. */
const DEEP = "deep in lists";

/** Values of every type, from empty to too large. */
const VALUES: readonly (() => unknown)[] = [
  ...[null, true, 0, -1, 1, 0.5, 255, 2 ** 16, 2 ** 31, 2 ** 53, 1e300, "", "x", "1", "\u001b[2J\n"]
    .map((value) => () => value),
  ...[[], {}, [null], [[]], { toJSON: 1 }, { length: 2 ** 32 }, "__proto__", "(a+)+$", "(a|a)*b"]
    .map((value) => () => value),
  () => JSON.parse('{"__proto__": {"type": 1}, "constructor": null, "hasOwnProperty": 1}'),
  () => DEEP,
  () => "long ".repeat(100_000),
  () => Array(100_000).fill(0),
  () => Array(70_000).fill({ stage: 0, workers: [0], layers: [], parameters: 1, costShare: 1 }),
];

/** Returns another value of the same type, as protobuf requires. */
function another(value: unknown): unknown {
  const number = oneOf([0, -1, 1, 2, 7, 255, 2 ** 16, 2 ** 31 - 1, -(2 ** 31)]);
  if (typeof value === "number") return number;
  if (typeof value === "bigint") return oneOf([BigInt(number), 2n ** 63n - 1n, 2n ** 40n]);
  if (typeof value === "string") return oneOf(["", "x", "Relu", "Loop", "é".repeat(9999), value]);
  if (value instanceof Uint8Array) return value.slice(draw(value.length + 1));
  if (Array.isArray(value) && value.length > 0) return Array(oneOf([0, 1, 2, 300])).fill(value[0]);
  return value;
}

type Container = Record<string, unknown>;

/** Yields every value within a value, with its parent. */
function* placesIn(value: unknown): Generator<readonly [Container, string]> {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return;
  for (const [key, one] of Object.entries(value).slice(0, 300)) {
    if (key.startsWith("$")) continue;
    yield [value as Container, key];
    yield* placesIn(one);
  }
}

/** Replaces one to three values of a tree by others or by values from elsewhere, or removes them. */
function change(tree: unknown, anew: (value: unknown) => unknown): string {
  const all = [...placesIn(tree)];
  return Array.from({ length: 1 + draw(3) }, () => {
    const [container, key] = oneOf(all), [from, other] = oneOf(all);
    const how = draw(6), type = typeof container[key];
    // In a message, only scalars fit elsewhere.
    const alike = typeof from[other] === type && (anew !== another || type !== "object");
    if (how === 0 && Array.isArray(container)) container.splice(Number(key), 1);
    else if (how === 0 && anew !== another) delete container[key];
    else if (how === 1 && alike) container[key] = structuredClone(from[other]);
    else container[key] = anew(container[key]);
    return key;
  }).join(", ");
}

const seen: Record<string, Record<"used" | "refused", number>> = {};

/** A case that must run or be refused in one sentence, within the time limit. */
const examine = (kind: string, what: string, use: () => Promise<unknown>): Case => ({
  name: `${kind}: ${what}`,
  async run() {
    const began = performance.now();
    const error = await use().then(() => undefined, (error: Error) => error);
    const took = performance.now() - began;
    (seen[kind] ??= { used: 0, refused: 0 })[error ? "refused" : "used"]++;
    if (error) assertSentence(error.message);
    assert.ok(took < MS_MAX, `it took ${took.toFixed(0)} ms`);
  },
});

/** Runs a command; throws its refusal. */
async function command(...words: string[]): Promise<void> {
  const { code, stderr } = await quietly((context) => troupe(words, context));
  if (code !== 0) throw new Error(stderr.trimEnd().split("\n").at(-1));
}

const folder = await Deno.makeTempDir({ prefix: "troupe-inputs-" });
const path = (...names: string[]) => join(folder, ...names);
const HOW = ["--device", "reference", "--runtime", "serial", "--steps", "1"];

/** Trains with a file; all output is in one folder. */
async function trainWith(...flags: string[]): Promise<void> {
  await command("train", ...flags, ...HOW, "--out", path("out")).finally(() =>
    Deno.remove(path("out"), { recursive: true }).catch(() => {})
  );
}

const encode = (json: unknown) => {
  const deep = "[".repeat(20_000) + "]".repeat(20_000);
  return new TextEncoder().encode(JSON.stringify(json).replaceAll(`"${DEEP}"`, deep));
};

function tokenizerCase(nth: number): Case {
  const json = structuredClone(oneOf<object>([SMALL, bytesTokenizerJson(), ...OTHERS]));
  const what = change(json, () => oneOf(VALUES)()), file = path("tokenizer.json");
  return examine("tokenizer.json", what, async () => {
    const bytes = encode(json);
    await Deno.writeFile(file, bytes);
    if (nth % 20 === 0) {
      // A step of a large vocabulary takes long.
      const flags = ["--text", path("text"), "--tokenizer", file, "--vocab", "300"];
      return await trainWith(...TINY, ...flags);
    }
    const tokenizer = await parseTokenizer(bytes, "tokenizer.json", 1000);
    try {
      const ids = await tokenizer.encode(`${"a".repeat(50)}! <s>Hello né\n`);
      assert.equal(typeof await tokenizer.decode([...ids, 3, 70_000]), "string");
    } finally {
      tokenizer.close();
    }
  });
}

/** Tokenizers of the other models. */
const OTHERS = [
  { ...SMALL, model: { type: "WordPiece", vocab: SMALL.model.vocab, unk_token: "?" } },
  { ...SMALL, model: { type: "Unigram", vocab: [["?", 0], ["a", -1], ["b", -1]], unk_id: 0 } },
  {
    ...SMALL,
    normalizer: { type: "Replace", pattern: { Regex: " +" }, content: "_" },
    pre_tokenizer: { type: "Split", pattern: { Regex: "a+|." }, behavior: "Isolated" },
    decoder: { type: "Replace", pattern: { String: "_" }, content: " " },
  },
];

async function onnxFiles(): Promise<Uint8Array[]> {
  const model = mlpOnnx({ inputs: 64, hidden: 8, layers: 1, classes: 10 });
  const sizes: Record<string, number> = {
    ...{ "0.weight": 512, "0.bias": 8, "1.weight": 80, "1.bias": 10 },
  };
  const valuesOf = (name: string) => new Float32Array(sizes[name.slice(7)]!).fill(0.1);
  const mlp = await new Blob([...model.pieces(valuesOf)]).bytes();
  const fixtures = (["bert", "gpt", "resnet"] as const).map((name) =>
    Deno.readFile(onnxPath(name))
  );
  return [mlp, ...await Promise.all(fixtures)];
}

function onnxCase(file: Uint8Array, nth: number): Case {
  let bytes = file.slice(), what = "bytes";
  if (nth % 3 === 0) {
    for (let i = 0; i <= draw(4); i++) bytes[draw(bytes.length)] = draw(256);
    if (draw(4) === 0) bytes = bytes.slice(0, draw(bytes.length));
  } else {
    const model = fromBinary(ModelProtoSchema, file);
    what = change(model, another);
    try {
      bytes = toBinary(ModelProtoSchema, model);
    } catch {
      // Values that protobuf cannot encode are not tried.
    }
  }
  return examine("ONNX", what, async () => {
    await Deno.writeFile(path("model.onnx"), bytes);
    if (nth % 20 === 0) {
      const learns = ["--data", "digits", "--loss", "cross-entropy", "--micro-batches", "1"];
      return await trainWith("--model", path("model.onnx"), ...learns);
    }
    const [input] = describeOnnx(bytes).inputs;
    const dimensions = Object.fromEntries(
      (input?.shape ?? []).filter((size) => typeof size === "string").map((size) => [size, 2]),
    );
    compileModel(fromOnnx(bytes, { loss: "cross-entropy", label: "labels", dimensions }), "none");
  });
}

function runCase(record: unknown): Case {
  const json = structuredClone(record), run = path("run");
  const what = change(json, () => oneOf(VALUES)());
  return examine("run.json", what, async () => {
    await Deno.writeFile(join(run, "run.json"), encode(json));
    const refusals: Error[] = [];
    const view = await followRun(run).catch((error) => void refusals.push(error));
    if (view) assert.ok(JSON.stringify(view.all()).length < 2 ** 24, "a page must be small");
    for (const words of [["plot"], ["compare", run], ["trace", "summary"], ["runs"]]) {
      await command(...words, words[0] === "runs" ? folder : run).catch((one) =>
        refusals.push(one)
      );
    }
    refusals.forEach(({ message }) => assertSentence(message));
    if (refusals[0]) throw refusals[0];
  });
}

await runCampaign("inputs", 2000, async function* (count, seed) {
  draw = drawing(seed, "inputs");
  await Deno.writeTextFile(path("text"), "ab a b?".repeat(40));
  await Deno.writeTextFile(path("victim"), "mine");
  Deno.chdir(folder);
  const flags = ["--text", path("text"), "--trace", path("trace.json"), "--out", path("run")];
  const { code, stderr } = await runHere(["train", ...TINY, ...HOW, ...flags]);
  assert.equal(code, 0, stderr);
  const record = await readJson(path("run"), "run.json"), files = await onnxFiles();
  for (let nth = 0; nth < count; nth++) {
    yield* [runCase(record), tokenizerCase(nth), onnxCase(oneOf(files), nth)];
  }
  yield {
    name: "only the folder of a run may be written",
    async run() {
      const names = (await Array.fromAsync(Deno.readDir("."), ({ name }) => name)).sort();
      const expected = ["model.onnx", "run", "text", "tokenizer.json", "trace.json", "victim"];
      assert.deepEqual([names, await Deno.readTextFile("victim")], [expected, "mine"]);
      for (const [kind, { used, refused }] of Object.entries(seen)) {
        print(`${kind}: ${used} used, ${refused} refused`);
      }
      await Deno.remove(folder, { recursive: true });
    },
  };
});
