/**
 * A decoder on a device, with the keys and values of its context: a token more costs one row.
 *
 * [Note: a window that moves] When the oldest token leaves the context all others change their
 * positions, and with them all keys and values. The cache is then computed anew, from the tokens that
 * stay. (Rotary positions would not need it in the first layer, but behind it every value has seen the
 * token that left.)
 *
 * @module
 */

import type { Device, Kernel, Tensor } from "../devices/device.ts";
import type { CachedDecoder, CachedLayer } from "../layers/helpers/cached_layer.ts";
import { LayerGraph, type ParameterSpec, type TensorSpec, type Tie } from "../layers/layer.ts";
import { encodeModel } from "../onnx/encode_model.ts";

/** A decoder and its context. Calls must be awaited one after the other. */
export interface OpenedDecoder {
  /**
   * Computes the logits of what comes after `ids`, [vocabulary]; the next call changes them.
   *
   * @param from how many of the `ids` are those of the call before, whose keys and values are kept.
   */
  logits(ids: readonly number[], from: number): Promise<Float32Array>;
  /** Frees its memory. */
  close(): void;
}

/** The fewest rows for which models are compiled, but for one row. */
const ROWS_MIN = 16;

/** Rows of the model that computes `tokens` at once: compiled for few sizes, as each takes time. */
const rowsFor = (tokens: number, seq: number) =>
  tokens === 1 ? 1 : Math.min(seq, Math.max(ROWS_MIN, 2 ** Math.ceil(Math.log2(tokens))));

/**
 * Writes the weights to a device.
 *
 * @throws {TypeError} when one is missing.
 */
export async function openDecoder(
  device: Device,
  decoder: CachedDecoder,
  weights: ReadonlyMap<string, Float32Array>,
): Promise<OpenedDecoder> {
  const { seq, hidden, vocab, cacheShape: shape } = decoder;
  const memory = openMemory(device);
  const one = await compileLayers(device, decoder, 1);
  const parameters = writeWeights(memory, one, decoder.ties, weights);
  const caches = one.map(({ kind }): Readonly<Record<string, Tensor>> =>
    kind === "attention"
      ? { keys: memory.alloc("f32", shape), values: memory.alloc("f32", shape) }
      : {}
  );
  const logits = memory.alloc("f32", [1, vocab]), result = new Float32Array(vocab);
  const bind = (layers: readonly CompiledLayer[], rows: number) =>
    bindRows(memory, layers, rows, hidden, { parameters, caches, logits });
  const bound = new Map([[1, bind(one, 1)]]);
  const rowsOf = async (rows: number) => {
    const known = bound.get(rows) ?? bind(await compileLayers(device, decoder, rows), rows);
    bound.set(rows, known);
    return known;
  };
  return {
    async logits(ids, from) {
      // One row goes on from a cache; more begin one.
      const begin = from === ids.length - 1 ? from : 0, rows = rowsFor(ids.length - begin, seq);
      // One row reads the cache that more rows write.
      if (begin === 0 && rows === 1) memory.zero(caches.flatMap((cache) => Object.values(cache)));
      await (await rowsOf(rows)).run(ids.slice(begin), begin);
      return await device.read(logits, result);
    },
    close() {
      for (const { close } of bound.values()) close();
      memory.close();
    },
  };
}

/** What allocates tensors and frees them together. */
function openMemory(device: Device) {
  const tensors: Tensor[] = [];
  return {
    write: device.write.bind(device),
    zero: (list: readonly Tensor[]) => list.forEach((tensor) => device.zero(tensor)),
    alloc(...[dtype, shape]: Parameters<Device["alloc"]>): Tensor {
      const tensor = device.alloc(dtype, shape);
      tensors.push(tensor);
      return tensor;
    },
    close: () => tensors.forEach((tensor) => device.free(tensor)),
  };
}

type Memory = ReturnType<typeof openMemory>;

/** A layer with the kernel of its kind. */
interface CompiledLayer extends CachedLayer {
  readonly kernel: Kernel;
  readonly parameters: readonly ParameterSpec[];
  readonly fields: readonly TensorSpec[];
}

async function compileLayers(
  device: Device,
  decoder: CachedDecoder,
  rows: number,
): Promise<CompiledLayer[]> {
  const kinds = new Map<string, Pick<CompiledLayer, "kernel" | "parameters" | "fields">>();
  const layers: CompiledLayer[] = [];
  for (const layer of decoder.layers(rows)) {
    const shape = [rows, decoder.hidden];
    const known = kinds.get(layer.kind) ?? await compileLayer(device, layer, shape);
    kinds.set(layer.kind, known);
    layers.push({ ...layer, ...known });
  }
  return layers;
}

async function compileLayer(device: Device, { kind, build }: CachedLayer, shape: number[]) {
  const g = new LayerGraph();
  const outputs = build(g, kind === "embedding" ? undefined : g.input("x", shape));
  const ports = (values: readonly (readonly [string, (typeof g.inputs)[number]])[]) =>
    values.map(([name, value]) => ({ name, value }));
  const model = encodeModel(
    g,
    ports(g.inputs.map((value) => [value.name, value])),
    // What is written may have the memory of what is read, but not its name.
    ports(Object.entries(outputs).map(([name, value]) => [`${name}'`, value])),
  );
  return {
    kernel: await device.compile(model),
    parameters: g.parameters.map(({ spec }) => spec),
    fields: g.fields.map(({ spec }) => spec),
  };
}

/** The parameters by full name; those that are tied are one. */
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

/** Binds the layers for a number of rows: between them two streams take turns. */
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
  const runs = layers.map(({ kernel, prefix }, i) => {
    const cache = Object.entries(caches[i]!);
    const inputs = { ...fields, ...caches[i], x: streams[i % 2]! };
    const outputs: Record<string, Tensor> = {
      "y'": i === layers.length - 1 ? logits : streams[(i + 1) % 2]!,
      ...Object.fromEntries(cache.map(([name, tensor]) => [`${name}'`, tensor])),
    };
    const inputOf = (name: string) =>
      name.startsWith("p.") ? parameters(prefix + name.slice(2)) : inputs[name as "x"];
    return kernel.bind(
      Object.fromEntries(kernel.inputs.map((name) => [name, inputOf(name)])),
      Object.fromEntries(kernel.outputs.map((name) => [name, outputs[name]!])),
    );
  });
  return {
    async run(tokens: readonly number[], begin: number): Promise<void> {
      const values: Record<string, Int32Array> = {
        "batch.ids": new Int32Array(rows),
        "batch.positions": Int32Array.from({ length: rows }, (_, i) => begin + i),
        "batch.last": Int32Array.of(tokens.length - 1),
      };
      values["batch.ids"]!.set(tokens); // later rows are masked, whatever they hold
      for (const [name, tensor] of Object.entries(fields)) memory.write(tensor, values[name]!);
      for (const run of runs) await run();
    },
    close: () => new Set(layers.map(({ kernel }) => kernel)).forEach((kernel) => kernel.close()),
  };
}
