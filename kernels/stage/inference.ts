/**
 * Predictions of trained layers, and text generation with a trained decoder.
 *
 * [Note: a window that moves] When the oldest token leaves the context all others change their
 * positions, and with them all keys and values. The cache is then computed anew, from the tokens that
 * stay. (Rotary positions would not need it in the first layer, but behind it every value has seen the
 * token that left.)
 *
 * @module
 */

import type { Batch } from "../batch.ts";
import { eventTurns } from "../builtin.ts";
import { compileModel, type ModelProgram } from "../compile/compile_model.ts";
import { PORTS } from "../compile/programs.ts";
import { type Device, HOST_ARRAYS, type Tensor } from "../devices/device.ts";
import { joinArrays } from "../devices/tensor_memory.ts";
import { assertInput, refusal } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import { type AnyLayer, LayerGraph, type Tie } from "../layers/layer.ts";
import { bind } from "./in_flight.ts";
import { SGD_DEFAULTS } from "./options.ts";
import { openStage } from "./stage.ts";
import { withAliases } from "./state.ts";
import type { FileTokenizer, Tokenizer } from "../data/tokenizer.ts";
import type { CachedDecoder, CachedLayer } from "../layers/decoder.ts";
import { cachedGpt2, type Gpt2Config } from "../layers/gpt2.ts";
import { cachedLlama, type LlamaConfig } from "../layers/llama.ts";
import { encodeGraph } from "../onnx/encode.ts";
import { substream } from "../random.ts";

/** Limit of samples in one computation. */
const SAMPLES_MAX = 256;

/** Computes the output of the last layer. Calls may overlap; they are answered in order. */
export type Predictor = (fields: Batch) => Promise<Float32Array>;

/**
 * Binds layers and their weights to a device.
 *
 * With a function of the number of samples, a prediction may have any number: samples are computed in
 * powers of two, the model is compiled for each of them when it is first needed, and missing samples
 * are 0. The result of a sample does not depend on the others.
 *
 * @param layers as for training, but the last returns outputs instead of a loss:
 * {@linkcode gpt2Logits}, {@linkcode mlpLogits}; or a function of the number of samples.
 * @param ties of the layers' parameters; `weights` may omit the aliases.
 * @throws {TypeError} when a weight is missing.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Layer, openPredictor, openReference } from "@troupe/troupe/kernels";
 *
 * const double = (samples: number): Layer => ({
 *   name: "double",
 *   build: (g) => g.mul(g.batch("x", [samples, 1]), g.parameter("factor", [1])),
 * });
 * const device = await openReference();
 * const weights = new Map([["double.factor", Float32Array.of(2)]]);
 * const two = await openPredictor(device, [double(2)], weights);
 * assert.deepEqual(await two({ x: Float32Array.of(3, 4) }), Float32Array.of(6, 8));
 * const any = await openPredictor(device, (samples) => [double(samples)], weights);
 * assert.deepEqual(await any({ x: Float32Array.of(1, 2, 3) }), Float32Array.of(2, 4, 6));
 * device.close();
 * ```
 */
export async function openPredictor(
  device: Device,
  layers:
    | readonly AnyLayer[]
    | ((samples: number) => readonly AnyLayer[] | Promise<readonly AnyLayer[]>),
  weights: ReadonlyMap<string, Float32Array>,
  ties: readonly Tie[] = [],
): Promise<Predictor> {
  // With the policy "full" a forward saves no activations.
  const compile = (own: readonly AnyLayer[]) =>
    compileModel({ name: "predictor", layers: own, predictions: 1, ties }, "full", {
      endsWithLoss: false,
    });
  const { weights: all, moments } = withAliases({ weights, moments: new Map() }, ties);
  const open = async (model: ModelProgram): Promise<Predictor> => {
    const stage = await openStage(device, model, { optimizer: SGD_DEFAULTS, backward: "never" });
    for (const { name, spec: { shape } } of model.parameters) {
      const size = elementCount(shape), length = all.get(name)?.length ?? size;
      const must = `the weight "${name}" must have ${size} elements, as the model has now`;
      assertInput(length === size, "load weights", must, length);
    }
    stage.load({ weights: all, moments });
    return async (fields) => {
      const { output } = await stage.forward(0, undefined, fields);
      stage.drop(0);
      return output as Float32Array; // The program is fp32.
    };
  };
  const predict = typeof layers === "function"
    ? await openForSamples(async (samples) => compile(await layers(samples)), open)
    : await open(compile(layers));
  // A stage computes one micro-batch after another, but requests to a server overlap.
  let before: Promise<unknown> = Promise.resolve();
  return (input) => {
    const output = before.then(() => predict(input));
    before = output.catch(() => {});
    return output;
  };
}

async function openForSamples(
  modelOf: (samples: number) => Promise<ModelProgram>,
  open: (model: ModelProgram) => Promise<Predictor>,
): Promise<Predictor> {
  const model = await modelOf(1), first = open(model), opened = new Map([[1, first]]);
  const fields = model.programs.flatMap((program) => program.fields);
  const sizes = new Map(fields.map(({ name, shape }) => [name, elementCount(shape)]));
  const kinds = fields.map(({ name, dtype }) => [name, HOST_ARRAYS[dtype]] as const);
  const predictorOf = (samples: number) =>
    opened.getOrInsertComputed(samples, async () => await open(await modelOf(samples)));
  await first;
  return async (input) => {
    const given = Object(input) as Batch;
    for (const [name, kind] of kinds) {
      const values: unknown = given[name], fits = values === undefined || values instanceof kind;
      const must = `the field "${name}" must be ${kind.name}`;
      assertInput(fits, "predict", must, Object(values).constructor.name, TypeError);
      const hasNaN = (values as Float32Array | undefined)?.includes(NaN);
      assertInput(!hasNaN, "predict", `the field "${name}" must have numbers only`, NaN);
    }
    const samples = countSamples(given, sizes), outputs: Float32Array[] = [];
    for (let from = 0; from < samples; from += SAMPLES_MAX) {
      const count = Math.min(SAMPLES_MAX, samples - from);
      const padded = 2 ** Math.ceil(Math.log2(count));
      const part = Object.fromEntries(Array.from(sizes, ([name, size]) => {
        const all = given[name]!, own = all.subarray(from * size, (from + count) * size);
        const values = new (all.constructor as Float32ArrayConstructor)(padded * size);
        values.set(own as Float32Array);
        return [name, values];
      }));
      const output = await (await predictorOf(padded))(part);
      outputs.push(output.slice(0, output.length / padded * count));
    }
    return joinArrays(Float32Array, outputs);
  };
}

function countSamples(input: Batch, sizes: ReadonlyMap<string, number>): number {
  const counts = Array.from(sizes, ([name, size]) => {
    const values = input[name], must = `the input must have the field "${name}"`;
    assertInput(values !== undefined, "predict", must, Object.keys(input).join(", ") || "none");
    const whole = `the field "${name}" must have ${size} values for each sample`;
    const isWhole = values!.length > 0 && values!.length % size === 0;
    assertInput(isWhole, "predict", whole, values!.length);
    return values!.length / size;
  });
  const isSame = counts.every((count) => count === counts[0]);
  const must = "all fields must have equal numbers of samples";
  assertInput(isSame, "predict", must, counts.join(", "));
  return counts[0] ?? 1;
}

/** The fewest rows for which models are compiled, besides one row. */
const ROWS_MIN = 16;

/** Returns the rows of the model for `tokens` tokens; few sizes, because each is compiled. */
const rowsFor = (tokens: number, seq: number) =>
  tokens === 1 ? 1 : Math.min(seq, Math.max(ROWS_MIN, 2 ** Math.ceil(Math.log2(tokens))));

/**
 * Opens a decoder with a context on a device. Calls must be awaited one after the other.
 *
 * @throws {TypeError} when one is missing.
 */
export async function openDecoder(
  device: Device,
  decoder: CachedDecoder,
  weights: ReadonlyMap<string, Float32Array>,
) {
  const { seq, hidden, vocab, cacheShape: shape } = decoder;
  const tensors: Tensor[] = [];
  const memory: Memory = {
    write: device.write.bind(device),
    alloc(dtype, shape) {
      const tensor = device.alloc(dtype, shape);
      tensors.push(tensor);
      return tensor;
    },
  };
  const one = await compileLayers(device, decoder, 1);
  const parameters = writeWeights(memory, one, decoder.ties, weights);
  const caches = one.map(({ kernel }): Readonly<Record<string, Tensor>> =>
    kernel.outputs.includes("keys'")
      ? { keys: memory.alloc("f32", shape), values: memory.alloc("f32", shape) }
      : {}
  );
  const logits = memory.alloc("f32", [1, vocab]), result = new Float32Array(vocab);
  const bind = (layers: readonly CompiledLayer[], rows: number) =>
    bindRows(memory, layers, rows, hidden, { parameters, caches, logits });
  const bound = new Map([[1, bind(one, 1)]]);
  const rowsOf = async (rows: number) =>
    bound.get(rows) ??
      bound.getOrInsert(rows, bind(await compileLayers(device, decoder, rows), rows));
  return {
    /**
     * Computes the logits of the token after `ids`, [vocabulary]; the next call overwrites them.
     *
     * @param from number of leading `ids` that the previous call had, whose keys and values are cached.
     */
    async logits(ids: readonly number[], from: number): Promise<Float32Array> {
      // One row extends a cache; more rows start one.
      const begin = from === ids.length - 1 ? from : 0, rows = rowsFor(ids.length - begin, seq);
      // One row reads the cache that more rows write.
      const stale = begin === 0 && rows === 1 ? caches : [];
      for (const tensor of stale.flatMap((cache) => Object.values(cache))) device.zero(tensor);
      await (await rowsOf(rows)).run(ids.slice(begin), begin);
      return await device.read(logits, result);
    },
    close(): void {
      for (const { close } of bound.values()) close();
      for (const tensor of tensors) device.free(tensor);
    },
  };
}

/** Allocates tensors that are freed together. */
type Memory = Pick<Device, "alloc" | "write">;

/** A layer with the kernel of its kind. */
type CompiledLayer = CachedLayer & Awaited<ReturnType<typeof compileLayer>>;

async function compileLayers(
  device: Device,
  decoder: CachedDecoder,
  rows: number,
): Promise<CompiledLayer[]> {
  const kinds = new Map<CachedLayer["build"], ReturnType<typeof compileLayer>>();
  const layers: CompiledLayer[] = [];
  for (const [i, layer] of decoder.layers(rows).entries()) {
    const x = i === 0 ? undefined : [rows, decoder.hidden];
    const compile = (build: CachedLayer["build"]) => compileLayer(device, build, x);
    layers.push({ ...layer, ...await kinds.getOrInsertComputed(layer.build, compile) });
  }
  return layers;
}

async function compileLayer(device: Device, build: CachedLayer["build"], shape?: number[]) {
  const g = new LayerGraph(), outputs = build(g, shape && g.input("x", shape));
  // An output may share the memory of an input, but not its name.
  const written = Object.entries(outputs).map(([name, value]) => [`${name}'`, value]);
  return {
    kernel: await device.compile(encodeGraph(g, Object.fromEntries(written))),
    parameters: g.parameters.map(({ spec }) => spec),
    fields: g.fields.map(({ spec }) => spec),
  };
}

/** Writes the parameters and returns a lookup by full name; tied parameters share a tensor. */
function writeWeights(
  memory: Memory,
  layers: readonly CompiledLayer[],
  ties: readonly Tie[],
  weights: ReadonlyMap<string, Float32Array>,
): (name: string) => Tensor {
  const canonical = new Map(ties.map(([name, alias]) => [alias, name]));
  const nameOf = (name: string) => canonical.get(name) ?? name;
  const tensors = new Map<string, Tensor>();
  for (const { prefix, parameters } of layers) {
    for (const { name, shape } of parameters) {
      const full = nameOf(prefix + name), values = weights.get(full);
      if (tensors.has(full)) continue;
      if (!values) throw new TypeError(`Cannot generate: the weight "${full}" must be given`);
      const tensor = memory.alloc("f32", shape);
      tensors.set(full, tensor);
      memory.write(tensor, values);
    }
  }
  return (name) => tensors.get(nameOf(name))!;
}

/** Binds the layers for a number of rows; two buffers alternate between them. */
function bindRows(
  memory: Memory,
  layers: readonly CompiledLayer[],
  rows: number,
  hidden: number,
  { parameters, caches, logits }: {
    readonly parameters: (name: string) => Tensor;
    readonly caches: readonly Readonly<Record<string, Tensor>>[];
    readonly logits: Tensor;
  },
) {
  const streams = [0, 1].map(() => memory.alloc("f32", [rows, hidden]));
  const fields: Record<string, Tensor> = {};
  for (const { name, dtype, shape } of layers.flatMap((layer) => layer.fields)) {
    fields[`batch.${name}`] ??= memory.alloc(dtype, shape);
  }
  const runs = layers.map(({ kernel, prefix, parameters: specs }, i) => {
    const cache = Object.entries(caches[i]!);
    const own = specs.map(({ name }) => [PORTS.parameter(name), parameters(prefix + name)]);
    const inputs = { ...fields, ...caches[i], ...Object.fromEntries(own), x: streams[i % 2]! };
    const outputs: Record<string, Tensor> = {
      "y'": i === layers.length - 1 ? logits : streams[(i + 1) % 2]!,
      ...Object.fromEntries(cache.map(([name, tensor]) => [`${name}'`, tensor])),
    };
    return bind(kernel, inputs, outputs);
  });
  return {
    async run(tokens: readonly number[], begin: number): Promise<void> {
      const values: Record<string, Int32Array> = {
        "batch.ids": new Int32Array(rows),
        "batch.positions": Int32Array.from({ length: rows }, (_, i) => begin + i),
        "batch.last": Int32Array.of(tokens.length - 1),
      };
      values["batch.ids"]!.set(tokens); // later rows are masked
      for (const [name, tensor] of Object.entries(fields)) memory.write(tensor, values[name]!);
      for (const run of runs) await run();
    },
    close: () => new Set(layers.map(({ kernel }) => kernel)).forEach((kernel) => kernel.close()),
  };
}

/** Options for choosing a token. */
export interface SampleOptions {
  /** 0 takes the likeliest token; 1 samples from the model's distribution. Default 0.8. */
  readonly temperature?: number;
  /** Number of likeliest tokens to draw from; of equal ones the lower id comes first. */
  readonly topK?: number | undefined;
  /**
   * Draws only from the fewest likeliest tokens whose probabilities sum to at least this value, from
   * 0 (one token) to 1: nucleus sampling (Holtzman et al. 2020). The probabilities are those after
   * temperature and `topK`.
   */
  readonly topP?: number | undefined;
}

/**
 * Checks the options for choosing a token.
 *
 * @throws {RangeError} when an option is out of its bounds.
 */
function checkSampling({ temperature = 0.8, topK = 1, topP = 1 }: SampleOptions): void {
  const cases = [
    ["temperature must be 0 or more", temperature, temperature >= 0],
    ["topK must be a whole number from 1", topK, Number.isSafeInteger(topK) && topK >= 1],
    ["topP must be a number from 0 to 1", topP, topP >= 0 && topP <= 1],
  ] as const;
  for (const [must, received, holds] of cases) {
    if (!holds) throw new RangeError(`Cannot generate: ${must}, received ${received}`);
  }
}

/**
 * Draws an index that `topK` and `topP` keep, with probability softmax(logits ÷ temperature).
 *
 * @param uniform a random number from 0 to below 1.
 * @throws {RangeError} when a logit is not a finite number, or an option is out of its bounds.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { sample } from "@troupe/troupe/kernels";
 *
 * const logits = Float32Array.of(1, 3, 3, 2);
 * assert.equal(sample(logits, { temperature: 0 }, 0.9), 1);
 * assert.equal(sample(logits, { temperature: 1, topK: 1 }, 0.9), 1);
 * assert.equal(sample(logits, { temperature: 1, topK: 2 }, 0.9), 2);
 * assert.equal(sample(logits, { temperature: 1 }, 0.9), 3);
 * ```
 */
export function sample(
  logits: Float32Array,
  options: SampleOptions,
  uniform: number,
): number {
  checkSampling(options);
  const { temperature = 0.8, topK = Infinity, topP = 1 } = options;
  const strange = logits.findIndex((logit) => !Number.isFinite(logit));
  if (strange >= 0) {
    throw refusal("generate", "logits must be finite", `${logits[strange]} for token ${strange}`);
  }
  const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  if (temperature === 0) return logits.indexOf(highest);
  const weightOf = (logit: number) => Math.exp((logit - highest) / temperature);
  const weights = Float64Array.from(logits, weightOf);
  if (topK < logits.length || topP < 1) {
    const descending = logits.toSorted().reverse(), most = Math.min(topK, logits.length);
    const kept = nucleus(Float64Array.from(descending.subarray(0, most), weightOf), topP);
    // Only the likeliest keep their weights, down to the logit `lowest`.
    const lowest = descending[kept - 1]!;
    let equals = kept - logits.reduce((above, logit) => above + Number(logit > lowest), 0);
    logits.forEach((logit, i) => {
      const isKept = logit > lowest || (logit === lowest && equals-- > 0);
      if (!isKept) weights[i] = 0;
    });
  }
  let rest = uniform * weights.reduce((a, b) => a + b, 0);
  const index = weights.findIndex((weight) => (rest -= weight) < 0);
  return index < 0 ? weights.findLastIndex((weight) => weight > 0) : index;
}

/** Returns the number of likeliest tokens, at least one, with the share `topP` of all. */
function nucleus(descending: Float64Array, topP: number): number {
  const enough = topP * descending.reduce((a, b) => a + b, 0);
  let sum = descending[0]!, count = 1;
  while (sum < enough && count < descending.length) sum += descending[count++]!;
  return topP < 1 ? count : descending.length;
}

/** Options of {@linkcode generate}. */
export interface GenerateOptions extends SampleOptions {
  /** The architecture. Default `gpt2`. */
  readonly architecture?: "gpt2" | "llama";
  /** The sizes of the model. */
  readonly config: Gpt2Config | LlamaConfig;
  /** The weights by name. */
  readonly weights: ReadonlyMap<string, Float32Array>;
  /** Token ids to continue; at least one. */
  readonly prompt: readonly number[];
  /** Number of tokens to add. */
  readonly tokens: number;
  /** Default 1. */
  readonly seed?: number;
  /**
   * Number of tokens by which the window moves when the context exceeds `seq` tokens, from 1 to `seq`;
   * the new window is computed from scratch. Default 1: each token sees all `seq` before it. With
   * more it sees at least `seq` − `slide` + 1 of them, and a token costs less. The first token sees
   * `seq` tokens of a longer prompt.
   */
  readonly slide?: number;
}

/** Decoders by architecture. */
const DECODERS = { gpt2: cachedGpt2, llama: cachedLlama } as const;

/**
 * Generates tokens one by one; each sees the `seq` tokens before it. Keys and values are cached, so
 * that a token costs one row of the model while all fit.
 *
 * @throws {RangeError} when the architecture is unknown, the prompt is empty or outside the
 * vocabulary, `temperature`, `topK` or `topP` is out of its bounds, `slide` is not from 1 to `seq`, or
 * the model computes a number that is not finite.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, generate, gpt2, openReference } from "@troupe/troupe/kernels";
 *
 * const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 };
 * const { parameters } = compileModel(gpt2(config, 1), "none");
 * const lengthOf = (shape: readonly number[]) => shape.reduce((length, size) => length * size);
 * const weights = new Map(
 *   parameters.map(({ name, spec }) => [name, new Float32Array(lengthOf(spec.shape))]),
 * );
 * const device = await openReference();
 * const ids = [];
 * const options = { config, weights, prompt: [3], tokens: 5, topK: 4, topP: 0.9 };
 * for await (const id of generate(device, options)) ids.push(id);
 * assert.equal(ids.length, 5);
 * device.close();
 * ```
 */
export async function* generate(device: Device, options: GenerateOptions): AsyncGenerator<number> {
  const { architecture = "gpt2", weights, prompt, tokens, seed = 1, slide = 1 } = options;
  const known = `architecture must be ${Object.keys(DECODERS).join(" or ")}`;
  assertInput(Object.hasOwn(DECODERS, architecture), "generate", known, architecture);
  const decoder = DECODERS[architecture](options.config), { seq, vocab } = decoder;
  const outside = prompt.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= vocab);
  const received = outside < 0 ? "none" : `${prompt[outside]} at position ${outside}`;
  const must = `the prompt must be one or more ids below ${vocab}`;
  assertInput(prompt.length > 0 && outside < 0, "generate", must, received);
  checkSampling(options);
  const isSlide = Number.isInteger(slide) && slide >= 1 && slide <= seq;
  assertInput(isSlide, "generate", `slide must be a whole number from 1 to ${seq}`, slide);
  const generator = substream(seed, "generate");
  const context = [...prompt], turn = eventTurns();
  const model = await openDecoder(device, decoder, weights);
  try {
    // `start`: the first token in the window; `seen`: tokens of the window that are cached.
    let start = Math.max(0, prompt.length - seq), seen = 0;
    for (let i = 0; i < tokens; i++) {
      if (context.length - start > seq) [start, seen] = [start + slide, 0];
      const logits = await model.logits(context.slice(start), seen);
      seen = context.length - start;
      const id = sample(logits, options, (generator.next() >>> 0) / 2 ** 32);
      context.push(id);
      // Most devices block the thread of the isolate.
      await turn();
      yield id;
    }
  } finally {
    model.close();
  }
}

/**
 * Generates text: the prompt and its continuation.
 *
 * @throws {RangeError} as {@linkcode generate}.
 */
export async function generateText(
  device: Device,
  tokenizer: Tokenizer | FileTokenizer,
  options: Omit<GenerateOptions, "prompt"> & { readonly prompt: string },
): Promise<string> {
  const prompt = [...await tokenizer.encode(options.prompt)];
  const added = await Array.fromAsync(generate(device, { ...options, prompt }));
  return await tokenizer.decode([...prompt, ...added]);
}
