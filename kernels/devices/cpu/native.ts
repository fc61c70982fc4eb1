/**
 * The native device: ONNX Runtime's C library over `Deno.dlopen`.
 *
 * Kernels read and write tensors in place, without a copy. By default runs use another thread than
 * the isolate's, so that it receives messages while a kernel computes.
 *
 * [Note: passes over memory] If a matrix product runs at hundreds of GFLOP/s, an element-wise operation
 * on values that do not fit into a core's cache costs about as much as a hundred multiplications per
 * element. `deno task bench kernels` measures the effect of each rewrite here. All rewrites depend only
 * on shapes, so an operation has the same bits in every model.
 *
 * @module
 */

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { locks } from "../../builtin.ts";
import { assertInput } from "../../errors.ts";
import { elementCount } from "../../graph/shapes.ts";
import { ONNX_DTYPE, TROUPE } from "../../graph/value.ts";
import { constantNumbers, type FusedRewrites, lowerGraph, valueTypes } from "../../onnx/lower.ts";
import {
  type GraphProto,
  type ModelProto,
  ModelProtoSchema,
  type NodeProto,
} from "../../onnx/onnx_pb.ts";
import {
  arithmetic,
  type Rewrite,
  rewriteNodes,
  shareEqual,
  type Writer,
} from "../../onnx/rewrite.ts";
import { scratchBytes } from "../../onnx/scratch.ts";
import { floatOf, intOf } from "../../onnx/signature.ts";
import { normalised } from "../../ops/normalization.ts";
import { type Device, DTYPE_BYTES } from "../device.ts";
import { type BoundProgram, hostDevice, type Program } from "../engine.ts";
import {
  type Bind,
  compileParts,
  compileWhole,
  type CutModel,
  cutModel,
  type IntermediateBytes,
  intermediateOf,
  openShared,
  type PartEngine,
} from "./parts.ts";
import { isRowOrWhole, type MatrixCall, matrixCall, type MatrixLibrary, OneDnn } from "./onednn.ts";
import { KernelMemory, type NativeBytes, openOrt, type Ort } from "./ort_api.ts";
import { bytesAt, cString, type Handle, nativeLibraryPath, POINTER_BYTES } from "./ort_library.ts";
import { simdCall } from "./simd.ts";

/** Binds a model to memory; undefined if kernels cannot address all of its arrays. */
type BindAdamw = (...given: Parameters<Program<NativeBytes>["bind"]>) => BoundProgram | undefined;

/** Returns the binding of a model to our kernel; undefined unless it is one step of AdamW. */
export function adamwOf(model: Uint8Array, memory: KernelMemory): BindAdamw | undefined {
  const { graph } = fromBinary(ModelProtoSchema, model), node = graph?.node[0];
  if (!graph || graph.node.length > 1 || node?.domain !== TROUPE || node.opType !== "AdamW") {
    return undefined;
  }
  const call = simdCall(node, valueTypes(graph));
  return call && ((inputs, outputs) => {
    const bindings = new Map([...inputs, ...outputs].map((one) => [one.name, one]));
    const scalars = inputs.filter(({ shape }) => shape.length === 0);
    const offsetOf = (name: string) => {
      const binding = bindings.get(name), scalar = binding ? scalars.indexOf(binding) : -1;
      if (scalar >= 0) return memory.scratch.byteOffset + 4 * scalar;
      const start = binding && memory.offsetOf(binding.block);
      return start === undefined ? undefined : start + binding!.byteOffset;
    };
    const from = node.input.map(offsetOf), to = node.output.map(offsetOf);
    const isThere = (at: number | undefined) => at !== undefined;
    if (!from.every(isThere) || !to.every(isThere)) return undefined;
    const values = scalars.map(({ block, byteOffset }) =>
      new Float32Array(block.bytes.buffer, byteOffset, 1)
    );
    return {
      run() {
        values.forEach((value, i) => memory.scratch[i] = value[0]!);
        call.run(memory.kernels, from, to, 0);
      },
      release() {},
    };
  });
}

const LOCK = "troupe: the native device";

/**
 * Runs an action while no other isolate of the process runs one: a Web Lock is shared by all isolates,
 * and a terminated worker releases it.
 */
export const mutex = <T>(action: () => T): Promise<T> => locks.request(LOCK, {}, action);

/** Elements of a few tensors that fit into a core's cache. */
const CACHED_ELEMENTS = 2 ** 16;

/** With c = 2√(2/π), t = c(x + 0.044715x³) and y = x·σ(t): y' = σ·(1 + x·t'·(1 − σ)). */
function geluGradient(write: Writer, [dy, x]: readonly string[], output?: string): string {
  const { add, sub, mul, scalar } = arithmetic(write);
  const c = 2 * Math.sqrt(2 / Math.PI), k = 0.044715;
  const x2 = mul(x!, x!);
  const t = mul(mul(x!, add(x2, scalar(1 / k))), scalar(c * k));
  const sigmoid = write.node("Sigmoid", [t]);
  const slope = mul(x!, add(x2, scalar(1 / (3 * k))));
  const rest = mul(slope, sub(scalar(3 * c * k), mul(sigmoid, scalar(3 * c * k))));
  return mul(dy!, mul(sigmoid, add(rest, scalar(1))), output);
}

/** Computes it in parts, so that intermediate values stay in the caches. */
const fastGeluGrad = (threads: number): Rewrite => (write, { input, output: [output] }) => {
  const { shape } = write.typeOf(input[0]!), rows = shape[0] ?? 1;
  const parts = Math.min(rows, Math.ceil(elementCount(shape) / (threads * CACHED_ELEMENTS)));
  if (parts <= 1) return void geluGradient(write, input, output);
  const sizes = Array.from(
    { length: parts },
    (_, i) => Math.floor((i + 1) * rows / parts) - Math.floor(i * rows / parts),
  );
  const split = input.map((name) =>
    write.nodes("Split", [name, write.constant("i64", sizes)], { axis: 0 }, parts)
  );
  const results = sizes.map((_, i) => geluGradient(write, split.map((of) => of[i]!)));
  write.node("Concat", results, { axis: 0 }, output);
};

/** dx = y·(dy − Σ y·dy). */
const softmaxGrad: Rewrite = (write, { input: [dy, y], output: [dx] }) => {
  const { sub, mul } = arithmetic(write);
  const last = write.constant("i64", [write.typeOf(y!).shape.length - 1]);
  const sum = write.node("ReduceSum", [mul(y!, dy!), last], { keepdims: 1 });
  mul(y!, sub(dy!, sum), dx);
};

/**
 * With x̂ = (x − μ)/σ and ŵ = w/n: dx = (dy·w − dy ŵ − x̂·((dy·x̂) ŵ))/σ, where the means over a row are
 * products with ŵ, and dy·x̂ is shared with the weights' gradient.
 */
const layerNormInputGrad: Rewrite = (write, { input, output: [dx] }) => {
  const [dy, , , inverseDeviation, weight] = input;
  const { sub, mul, scalar, reshape } = arithmetic(write);
  const normal = normalised(write, input.slice(1)), size = write.typeOf(weight!).shape[0]!;
  const column = reshape(mul(weight!, scalar(1 / size)), [size, 1]);
  const mean = (of: string) => write.node("MatMul", [of, column]);
  const centred = sub(mul(dy!, weight!), mean(dy!));
  mul(sub(centred, mul(normal, mean(mul(dy!, normal)))), inverseDeviation!, dx);
};

/** The numbers as they are: the product rounds them. */
const unchanged: Rewrite = (write, { input, output }) =>
  void write.node("Identity", input, {}, output[0]);

const own = (threads: number, matrix?: MatrixLibrary): FusedRewrites => ({
  FastGeluGrad: fastGeluGrad(threads),
  LayerNormInputGrad: layerNormInputGrad,
  SoftmaxGrad: softmaxGrad,
  ...matrix && { RoundBf16: matrix.name === "MLAS" ? unchanged : "keep" },
});

/**
 * aᵀ·b with a transposed first: the product would transpose it for each 128 columns of b. This pays for
 * its pass over memory unless a is wider than b: `deno task bench weight-gradients` compares both.
 */
const weightGradient: Rewrite = (write, node) => {
  const [a, ...others] = node.input as [string, ...string[]];
  const transposed = write.node("Transpose", [a], { perm: [1, 0] });
  const float = (name: string) => ({ float: floatOf(node, name, 1) });
  const settings = { transB: intOf(node, "transB", 0), alpha: float("alpha"), beta: float("beta") };
  write.node("Gemm", [transposed, ...others], settings, node.output[0]);
};

/** Σ over rows as a product with ones: half the time, and with several threads a fifth. */
const columnSums: Rewrite = (write, { input: [x], output: [sums] }) => {
  const [rows, columns] = write.typeOf(x!).shape as [number, number];
  const ones = write.constant("f32", new Array(rows).fill(1), [1, rows]);
  const product = write.node("MatMul", [ones, x!]);
  arithmetic(write).reshape(product, [columns], sums);
};

/** α·a·b + β·c as two operations. */
const separateSum: Rewrite = (write, node) => {
  const [a, b, c] = node.input as [string, string, string],
    { add, mul, scalar } = arithmetic(write);
  const [transA, transB] = [intOf(node, "transA", 0), intOf(node, "transB", 0)];
  const alpha = { float: floatOf(node, "alpha", 1) };
  const product = write.node("Gemm", [a, b], { transA, transB, alpha });
  add(product, mul(c, scalar(floatOf(node, "beta", 1))), node.output[0]);
};

/** Returns the names of factors that were rounded. */
const roundedFactors = (graph: GraphProto | undefined): ReadonlySet<string> =>
  new Set(graph?.node.flatMap(({ opType, output }) => opType === "RoundBf16" ? output : []));

/** Rewrites products and sums in place. */
function rewriteProducts(graph: GraphProto, threads: number): void {
  const types = valueTypes(graph), rounded = roundedFactors(graph);
  const isSupported = (node: NodeProto) => {
    const [c, y] = [node.input[2], node.output[0]].map((name) => types.get(name ?? ""));
    return !c || y && isRowOrWhole(c, y) && floatOf(node, "beta", 1) === 1;
  };
  const columnsOf = (name: string | undefined) => types.get(name ?? "")?.shape[1];
  const numbersOf = constantNumbers(graph);
  const isOverRows = (node: NodeProto) => {
    const [from, to] = [node.input[0], node.output[0]].map((name) => types.get(name ?? ""));
    return from?.dtype === "f32" && from.shape.length === 2 && to?.shape.length === 1 &&
      `${numbersOf(node)(1)}` === "0";
  };
  rewriteNodes(graph, types, "native", (node: NodeProto) => {
    if (node.opType === "ReduceSum" && isOverRows(node)) return columnSums;
    if (rounded.has(node.input[0]!)) return isSupported(node) ? undefined : separateSum;
    if (threads > 1 || node.opType !== "Gemm" || intOf(node, "transA", 0) !== 1) return undefined;
    const own = columnsOf(node.input[0]), result = columnsOf(node.output[0]);
    return own && result && own <= result ? weightGradient : undefined;
  });
}

/**
 * Rewrites a model for the native device.
 *
 * @param threads within an operation: each has a cache, and transposes its part of a product.
 * @throws {Error} when the bytes are not a model.
 */
export const prepareModel = (bytes: Uint8Array, threads = 1): Uint8Array =>
  toBinary(ModelProtoSchema, prepared(bytes, threads));

function prepared(bytes: Uint8Array, threads: number, matrix?: MatrixLibrary): ModelProto {
  const model = fromBinary(ModelProtoSchema, bytes), { graph } = model;
  if (!graph) return model;
  lowerGraph(graph, own(threads, matrix));
  rewriteProducts(graph, threads);
  shareEqual(graph);
  return model;
}

/** Cuts a rewritten model at its products in BF16; undefined if it has none. */
function cutAtProducts(model: ModelProto): CutModel<MatrixCall> | undefined {
  const rounded = roundedFactors(model.graph);
  return rounded.size > 0 ? cutModel(model, matrixCall(rounded)) : undefined;
}

/** Returns the memory of intermediate values of a model, with products in BF16 by oneDNN. */
export function nativeIntermediate(bytes: Uint8Array): IntermediateBytes {
  const model = prepared(bytes, 1, { name: "oneDNN", version: "" }), cut = cutAtProducts(model);
  if (cut) return intermediateOf(cut);
  return { library: scratchBytes(toBinary(ModelProtoSchema, model)), shared: 0 };
}

/** Options of {@linkcode openNative}. */
export interface NativeOptions {
  /**
   * Threads within one operation. Default 1; only the native device can have more. Some bits depend on
   * this number, but not on other work of the machine.
   */
  threads?: number;
  /**
   * True if runs block the isolate's thread. Default false: a run uses another thread. An isolate
   * without other work is faster without the change of threads, which took an eighth of the time of
   * two workers on two cores.
   */
  isBlocking?: boolean;
  /** The ONNX Runtime library. Default {@linkcode nativeLibraryPath}. */
  library?: string;
  /** The library for products with factors in BF16. Default: none; they are then products in FP32. */
  matrix?: MatrixLibrary;
  /** Receives lines for the user, such as one before a download starts. */
  announce?: (line: string) => void;
}

/**
 * Opens ONNX Runtime's native library as a device. Its memory is not garbage collected: close it.
 *
 * @throws {RangeError} when `threads` is not a positive integer.
 * @throws {Error} when the library cannot be found, fetched or loaded.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openNative } from "@troupe/troupe/kernels";
 *
 * const device = await openNative();
 * const tensor = device.alloc("f32", [2, 3]);
 * const row = device.view(tensor, 3, [3]);
 * device.write(row, Float32Array.of(1, 2, 3));
 * assert.deepEqual(await device.read(tensor), Float32Array.of(0, 0, 0, 1, 2, 3));
 * device.close();
 * ```
 */
export async function openNative(options: NativeOptions = {}): Promise<Device> {
  const { threads = 1, isBlocking = false, matrix, announce } = options;
  const isCount = Number.isInteger(threads) && threads >= 1;
  const must = "threads must be a whole number from 1";
  assertInput(isCount, "open the native device", must, threads);
  const library = options.library ?? await nativeLibraryPath(announce);
  const ort = await mutex(() => openOrt(library, { threads, isBlocking, matrix }));
  const own = isBlocking ? new KernelMemory() : undefined;
  const oneDnn = matrix?.path === undefined ? undefined : new OneDnn(matrix.path, threads);
  const engine: PartEngine<NativeBytes, Session, MatrixCall> = {
    allocate: (byteLength) => own?.allocate(byteLength) ?? ort.allocate(byteLength),
    free: (block) => void (own?.free(block) || ort.free(block)),
    addressOf: ({ address }) => Number(address),
    bytesAt,
    createSession: async (model) => ({
      handle: await ort.createSession(model),
      names: openNames(ort),
    }),
    releaseSession({ handle, names }) {
      ort.releaseSession(handle);
      names.close();
    },
    bindSession: bindSession(ort),
    bindCall: (call, inputs, outputs) => call.bind(oneDnn!, inputs, outputs),
  };
  const shared = openShared(engine);
  return hostDevice<NativeBytes>({
    name: "native",
    allocate: engine.allocate,
    bytes: ({ bytes }) => bytes,
    release: engine.free,
    async compile(bytes) {
      const model = prepared(bytes, threads, matrix), cut = cutAtProducts(model);
      if (cut) return await compileParts(engine, shared, cut);
      const { bind, release } = await compileWhole(engine, toBinary(ModelProtoSchema, model));
      const bindOwn = own && adamwOf(bytes, own);
      return { bind: (...given) => bindOwn?.(...given) ?? bind(...given), release };
    },
    close() {
      shared.free();
      oneDnn?.close();
      ort.close();
    },
  });
}

/** A compiled model, and the names of its inputs and outputs. */
type Session = { readonly handle: Handle; readonly names: ReturnType<typeof openNames> };

const bindSession = (ort: Ort): Bind<Session> => ({ handle, names }, inputs, outputs) => {
  const all = [...inputs, ...outputs];
  const tensors = all.map(({ dtype, shape, address }) => {
    const byteLength = elementCount(shape) * DTYPE_BYTES[dtype];
    return ort.createTensor(BigInt(address), byteLength, shape, ONNX_DTYPE[dtype]);
  });
  const table = ort.allocate(2 * all.length * POINTER_BYTES);
  new BigUint64Array(table.bytes.buffer).set([
    ...all.map(({ name }) => names.at(name)),
    ...tensors.map(Deno.UnsafePointer.value),
  ]);
  return {
    run: ort.bindRun(handle, table.address, inputs.length, outputs.length),
    release() {
      tensors.forEach(ort.releaseTensor);
      ort.free(table);
    },
  };
};

/**
 * Writes the names of a session's inputs and outputs as zero-terminated strings, each once: some
 * sessions, such as those of the optimizer, are bound a thousand times.
 */
function openNames(ort: Ort) {
  const known = new Map<string, NativeBytes>();
  const write = (name: string) => {
    const text = cString(name), memory = ort.allocate(text.length);
    memory.bytes.set(text);
    return memory;
  };
  return {
    at: (name: string) => known.getOrInsertComputed(name, write).address,
    close: () => known.forEach(ort.free),
  };
}
