/**
 * Products of matrices with factors in BF16 and sums in FP32: oneDNN's C library over `Deno.dlopen`.
 *
 * [Note: oneDNN's products] `dnnl_gemm_bf16bf16f32` reads row-major matrices, also transposed ones, and
 * adds to its result, so a weight needs no packed copy and a product no descriptor. On GPT-2's shapes it
 * is as fast as `dnnl_matmul` with packed factors (190 to 250 GFLOP/s on a core with AVX512-BF16), and up
 * to 1.3 times as fast as `dnnl_matmul` without. Calls block the thread, because OpenMP's number of
 * threads belongs to the thread that calls. The same number of threads gives the same bits.
 *
 * @module
 */

import { refusal, resultOr } from "../../errors.ts";
import { elementCount, sameShape } from "../../graph/shapes.ts";
import { TROUPE, type ValueType } from "../../graph/value.ts";
import type { NodeProto } from "../../onnx/onnx_pb.ts";
import { productOf } from "../../onnx/signature.ts";
import type { BoundProgram } from "../engine.ts";
import type { Bind, PartCall, Placed, Places } from "./parts.ts";
import { bytesAt, created, type Handle, keepLoaded } from "./ort_library.ts";

/** A library for products of matrices. */
export interface MatrixLibrary {
  /** The name of the library. */
  readonly name: "oneDNN" | "MLAS";
  /** Its version, such as `2.6.3`. */
  readonly version: string;
  /** Path of the library; absent if it is part of ONNX Runtime. */
  readonly path?: string;
}

/** The name of the library that Debian's package libdnnl2 installs. */
const INSTALLED = "libdnnl.so.2";

/** The supported major version; others have another API. */
const MAJOR = 2;

/** The bit of AVX512-BF16 in a set of instructions; sets with AMX have it, too. */
const BF16_BIT = 0x80;

const CPU = 1, IN_ORDER = 1, BF16 = 2, FP32 = 3, ROW = 2, FROM = 1, TO = 17;

/** Bytes of a descriptor of memory, rounded up. */
const DESCRIPTOR_BYTES = 1024;

/** Bytes of a number and a pointer: an argument of a primitive. */
const ARGUMENT_BYTES = 16;

const POINTER = "pointer", BUFFER = "buffer";

/** Functions of all versions. */
const FACTS = {
  dnnl_version: { parameters: [], result: POINTER },
  dnnl_get_effective_cpu_isa: { parameters: [], result: "i32" },
} as const;

/** A function that returns a status. */
const status = <const P extends readonly Deno.NativeType[]>(...parameters: P) => (
  { parameters, result: "i32" } as const
);

const SYMBOLS = {
  dnnl_engine_create: status(BUFFER, "i32", "usize"),
  dnnl_engine_destroy: status(POINTER),
  dnnl_stream_create: status(BUFFER, POINTER, "u32"),
  dnnl_stream_destroy: status(POINTER),
  dnnl_memory_desc_init_by_tag: status(BUFFER, "i32", BUFFER, "i32", "i32"),
  dnnl_memory_create: status(BUFFER, BUFFER, POINTER, POINTER),
  dnnl_memory_destroy: status(POINTER),
  dnnl_reorder_primitive_desc_create: status(BUFFER, BUFFER, POINTER, BUFFER, POINTER, POINTER),
  dnnl_primitive_desc_destroy: status(POINTER),
  dnnl_primitive_create: status(BUFFER, POINTER),
  dnnl_primitive_destroy: status(POINTER),
  dnnl_primitive_execute: status(POINTER, POINTER, "i32", BUFFER),
  dnnl_gemm_bf16bf16f32: status(
    ...["u8", "u8", "i64", "i64", "i64", "f32"] as const,
    ...[POINTER, "i64", POINTER, "i64", "f32", POINTER, "i64"] as const,
  ),
  // Functions of the OpenMP library that oneDNN loads.
  omp_set_num_threads: { parameters: ["i32"], result: "void" },
} as const;

/** Instructions for BF16, by their names in `/proc/cpuinfo`. */
const INSTRUCTIONS = { avx512_bf16: "AVX512-BF16", amx_bf16: "AMX", bf16: "BF16 of ARM" } as const;

/** Returns the flags of this machine's CPU; undefined if the system does not say. */
export function cpuFlags(): ReadonlySet<string> | undefined {
  const text = resultOr(() => Deno.readTextFileSync("/proc/cpuinfo"), undefined);
  return text === undefined
    ? undefined
    : new Set(/^(?:flags|Features)\s*:(.*)$/m.exec(text)?.[1]?.trim().split(/\s+/));
}

/** Returns the instructions for BF16 of this machine's CPU; undefined if the system does not say. */
export function bf16Instructions(): string[] | undefined {
  const flags = cpuFlags();
  return flags &&
    Object.entries(INSTRUCTIONS).flatMap(([flag, name]) => flags.has(flag) ? [name] : []);
}

/**
 * Finds the library on this machine.
 *
 * @param path default: the installed one.
 * @throws {Error} when it or the CPU has no products in BF16, with the package to install.
 */
export function findOneDnn(path = INSTALLED): MatrixLibrary & { readonly path: string } {
  const library = open(path, FACTS), { symbols } = library;
  const numbers = new Deno.UnsafePointerView(symbols.dnnl_version()!);
  const version = [0, 4, 8].map((at) => numbers.getInt32(at)).join(".");
  const hasBf16 = (symbols.dnnl_get_effective_cpu_isa() & BF16_BIT) !== 0;
  library.close();
  if (hasBf16 && version.startsWith(`${MAJOR}.`)) return { name: "oneDNN", version, path };
  throw missing(hasBf16 ? `oneDNN ${version}` : "a CPU with neither");
}

function open<S extends Deno.ForeignLibraryInterface>(path: string, symbols: S) {
  try {
    return Deno.dlopen(path, symbols);
  } catch (error) {
    throw missing((error as Error).message);
  }
}

const missing = (received: string) =>
  refusal(
    "compute products in bf16",
    `the CPU must have AVX512-BF16 or AMX, and oneDNN ${MAJOR} must be installed (Debian's package libdnnl2) or named by onednn`,
    received,
    Error,
  );

function check(status: number): void {
  if (status !== 0) throw new Error(`oneDNN failed with status ${status}`);
}

/** An open oneDNN. */
export class OneDnn {
  readonly #library: ReturnType<typeof open<typeof SYMBOLS>>;
  readonly #threads: number;
  readonly #engine: Handle;
  readonly #stream: Handle;
  /** The primitives that round a number of elements. */
  readonly #rounding = new Map<number, Handle>();

  /** @param path of a library that {@linkcode findOneDnn} has checked. */
  constructor(path: string, threads: number) {
    this.#library = open(path, SYMBOLS);
    keepLoaded(path);
    this.#threads = threads;
    const { dnnl_engine_create, dnnl_stream_create } = this.#library.symbols;
    this.#engine = created((out) => check(dnnl_engine_create(out, CPU, 0n)));
    this.#stream = created((out) => check(dnnl_stream_create(out, this.#engine, IN_ORDER)));
  }

  /** Binds the rounding of numbers to BF16. */
  bindRounding(count: number, from: number, to: number): BoundProgram {
    const { dnnl_primitive_execute, dnnl_memory_destroy } = this.#library.symbols;
    const primitive = this.#roundingOf(count);
    const memories = [this.#memory(count, FP32, from), this.#memory(count, BF16, to)];
    const given = new Uint8Array(memories.length * ARGUMENT_BYTES),
      view = new DataView(given.buffer);
    for (const [i, place] of [FROM, TO].entries()) {
      view.setInt32(i * ARGUMENT_BYTES, place, true);
      view.setBigUint64(i * ARGUMENT_BYTES + 8, Deno.UnsafePointer.value(memories[i]!), true);
    }
    return {
      run: () => {
        this.#useThreads();
        check(dnnl_primitive_execute(primitive, this.#stream, memories.length, given));
      },
      release: () => memories.forEach(dnnl_memory_destroy),
    };
  }

  #roundingOf(count: number): Handle {
    return this.#rounding.getOrInsertComputed(count, () => {
      const { symbols } = this.#library,
        [from, to] = [FP32, BF16].map((type) => this.#row(count, type));
      const create = symbols.dnnl_reorder_primitive_desc_create;
      this.#useThreads();
      const description = created((out) =>
        check(create(out, from!, this.#engine, to!, this.#engine, null))
      );
      const primitive = created((out) => check(symbols.dnnl_primitive_create(out, description)));
      symbols.dnnl_primitive_desc_destroy(description);
      return primitive;
    });
  }

  #row(count: number, type: number): Uint8Array<ArrayBuffer> {
    const description = new Uint8Array(DESCRIPTOR_BYTES);
    const sizes = new Uint8Array(BigInt64Array.of(BigInt(count)).buffer);
    check(this.#library.symbols.dnnl_memory_desc_init_by_tag(description, 1, sizes, type, ROW));
    return description;
  }

  #memory(count: number, type: number, address: number): Handle {
    const { dnnl_memory_create } = this.#library.symbols, row = this.#row(count, type);
    return created((out) => check(dnnl_memory_create(out, row, this.#engine, pointerTo(address))));
  }

  /** Binds y = α·op(a)·op(b) + β·y; a and b are in BF16. */
  bindProduct(sizes: ReturnType<typeof productOf>, [a, b]: Places, beta: number, y: Placed) {
    const { dnnl_gemm_bf16bf16f32 } = this.#library.symbols;
    const { m, n, k, transA, transB, alpha } = sizes;
    const letter = (isTurned: number) => (isTurned ? "T" : "N").charCodeAt(0);
    const given = [
      ...[letter(transA), letter(transB), BigInt(m), BigInt(n), BigInt(k), alpha] as const,
      ...[pointerTo(a!.address), BigInt(transA ? m : k)] as const,
      ...[pointerTo(b!.address), BigInt(transB ? k : n), beta] as const,
      ...[pointerTo(y.address), BigInt(n)] as const,
    ] as const;
    return () => {
      this.#useThreads();
      check(dnnl_gemm_bf16bf16f32(...given));
    };
  }

  #useThreads(): void {
    this.#library.symbols.omp_set_num_threads(this.#threads);
  }

  close(): void {
    const { symbols } = this.#library;
    this.#rounding.forEach((primitive) => symbols.dnnl_primitive_destroy(primitive));
    symbols.dnnl_stream_destroy(this.#stream);
    symbols.dnnl_engine_destroy(this.#engine);
    this.#library.close();
  }
}

const pointerTo = (address: number) => Deno.UnsafePointer.create(BigInt(address));

/** A node that oneDNN computes. */
export interface MatrixCall extends PartCall {
  /** Binds it to memory. */
  readonly bind: Bind<OneDnn>;
}

const rounding = ({ shape }: ValueType): MatrixCall => {
  const count = elementCount(shape);
  return {
    outputBytes: 2 * count,
    bind: (library, [x], [y]) => library.bindRounding(count, x!.address, y!.address),
  };
};

/** α·op(a)·op(b) + c, where c is a row, as large as the product, or absent. */
const product = (
  sizes: ReturnType<typeof productOf>,
  c: ValueType | undefined,
): MatrixCall => ({
  bind(library, inputs, [y]) {
    const add = library.bindProduct(sizes, inputs, c ? 1 : 0, y!), atC = inputs[2];
    const isInPlace = !c || atC!.address === y!.address;
    const bytes = isInPlace
      ? []
      : [[atC!, elementCount(c.shape)], [y!, sizes.m * sizes.n]] as const;
    const [from, to] = bytes.map(([{ address }, count]) => bytesAt(address, 4 * count));
    return {
      run() {
        if (from && to) repeat(from, to);
        add();
      },
      release() {},
    };
  },
});

/** Bytes that stay in a core's first cache. */
const CACHED_BYTES = 2 ** 14;

/** Fills an array with copies of another one. */
function repeat(from: Uint8Array, to: Uint8Array): void {
  to.set(from);
  const most = from.length * Math.max(1, Math.floor(CACHED_BYTES / from.length));
  for (let at = from.length; at < to.length;) {
    const length = Math.min(at, most, to.length - at);
    to.copyWithin(at, 0, length);
    at += length;
  }
}

/** Returns whether a sum of a product and c has a form that {@linkcode matrixCall} supports. */
export const isRowOrWhole = ({ shape: c }: ValueType, { shape: y }: ValueType): boolean =>
  sameShape(c, y) || c.at(-1) === y[1] && elementCount(c) === y[1];

/** Returns the call of a node; undefined if it is neither a rounding nor a product of rounded factors. */
export const matrixCall =
  (rounded: ReadonlySet<string>) => (node: NodeProto, types: ReadonlyMap<string, ValueType>) => {
    const [a, b, c] = node.input.map((name) => types.get(name));
    if (node.domain === TROUPE && node.opType === "RoundBf16") return a && rounding(a);
    if (node.opType !== "Gemm" || !a || !b || !rounded.has(node.input[0]!)) return undefined;
    return product(productOf(node, a, b), c);
  };
