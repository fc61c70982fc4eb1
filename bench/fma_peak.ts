/**
 * The most operations per second of a core: a loop of independent FMAs in machine code.
 *
 * WebAssembly has vectors of four numbers, a quarter of AVX-512, so its loops are far from the limit.
 *
 * @module
 */

/** Chains of dependent FMAs: at least the latency of an FMA times the units of a core. */
const CHAINS = 12;
/** Turns of the loop in a run: some milliseconds. */
const TURNS = 2_000_000;

/** The register with the factors of all products; the chains have those below. */
const FACTORS = 15;

/** Encodes an instruction: the numbers of its result, and of its first and second operand. */
type Encode = (result: number, first: number, second: number) => readonly number[];

/** Bits of a prefix that extend the numbers of the registers beyond 7, inverted. */
const extension = (result: number, second: number) =>
  0x40 | (result < 8 ? 0x80 : 0) | (second < 8 ? 0x20 : 0);
const inverted = (register: number) => (~register & 15) << 3;
const operands = (result: number, second: number) => 0xc0 | (result & 7) << 3 | second & 7;

/** Returns an instruction on 512 or 256 bits, by its mandatory prefix and its operation code. */
const instruction =
  (isWide: boolean, prefix: number, code: number): Encode => (to, first, second) => {
    const bits = extension(to, second) | 2, rest = inverted(first) | 4 | prefix;
    const prefixes = isWide ? [0x62, bits | 0x10, rest, 0x48] : [0xc4, bits, rest];
    return [...prefixes, code, operands(to, second)];
  };

/** An instruction that multiplies and adds. */
interface Fma {
  /** The flag in /proc/cpuinfo. */
  readonly flag: string;
  readonly isWide: boolean;
  readonly encode: Encode;
}

/** The instructions of a precision, the widest first: vfmadd231ps, vdpbf16ps. */
const INSTRUCTIONS: Readonly<Record<"fp32" | "bf16", readonly Fma[]>> = {
  fp32: [
    { flag: "avx512f", isWide: true, encode: instruction(true, 1, 0xb8) },
    { flag: "fma", isWide: false, encode: instruction(false, 1, 0xb8) },
  ],
  bf16: [{ flag: "avx512_bf16", isWide: true, encode: instruction(true, 2, 0x52) }],
};

/** Additions of an instruction to each 32-bit sum, and four bytes of factors, each 1. */
const TERMS = {
  fp32: { terms: 1, ones: 1 },
  bf16: { terms: 2, ones: new Float32Array(Uint32Array.of(0x3f803f80).buffer)[0]! },
} as const;

/** Returns `(turns: i64, ones: f32) => f32`: a sum of the first chain after some turns. */
function machineCode({ encode, isWide }: Fma): Uint8Array<ArrayBuffer> {
  const chains = Array.from({ length: CHAINS }, (_, chain) => chain);
  // vxorps of each register with itself
  const zeros = chains.flatMap((r) => [
    ...[0xc4, 0x41 | (r < 8 ? 0xa0 : 0), inverted(r), 0x57, operands(r, r)],
  ]);
  const body = chains.flatMap((chain) => encode(chain, FACTORS, FACTORS));
  const dec = [0x48, 0xff, 0xcf], jnz = [0x0f, 0x85]; // of rdi, the first argument
  const back = new Uint8Array(Int32Array.of(-(body.length + dec.length + jnz.length + 4)).buffer);
  const end = [0xc5, 0xf8, 0x77, 0xc3]; // vzeroupper, ret
  const vbroadcastss = instruction(isWide, 1, 0x18);
  const begin = [...vbroadcastss(FACTORS, 0, 0), ...zeros];
  return Uint8Array.from([...begin, ...body, ...dec, ...jnz, ...back, ...end]);
}

/** A loop of FMAs. */
interface FmaLoop {
  readonly gflop: number;
  /** Runs the loop once, on this thread. */
  readonly run: () => void;
}

/** Memory that is private, anonymous, and readable, writable and executable. */
const [PAGE, PROTECTION, FLAGS] = [4096n, 7, 0x22] as const;
/** The address that `mmap` returns if the system forbids it. */
const FORBIDDEN = 2n ** 64n - 1n;

/**
 * Opens the loop of a precision.
 *
 * @returns undefined on other systems than Linux on x86-64, without the instruction, and if the system
 * forbids memory that is written and executed.
 */
export async function openFmaLoop(precision: "fp32" | "bf16"): Promise<FmaLoop | undefined> {
  if (Deno.build.target !== "x86_64-unknown-linux-gnu") return undefined;
  const flags = new Set((await Deno.readTextFile("/proc/cpuinfo")).split(/\s+/));
  const fma = INSTRUCTIONS[precision].find(({ flag }) => flags.has(flag));
  if (!fma) return undefined;
  const libc = Deno.dlopen("libc.so.6", {
    mmap: { parameters: ["usize", "usize", "i32", "i32", "i32", "isize"], result: "pointer" },
  });
  const code = machineCode(fma);
  const page = libc.symbols.mmap(0n, PAGE, PROTECTION, FLAGS, -1, 0n);
  libc.close();
  if (!page || Deno.UnsafePointer.value(page) === FORBIDDEN) return undefined;
  new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(page, code.length)).set(code);
  const type = { parameters: ["i64", "f32"], result: "f32" } as const;
  const loop = new Deno.UnsafeFnPointer(page as Deno.PointerObject<typeof type>, type);
  const { terms, ones } = TERMS[precision], lanes = fma.isWide ? 16 : 8;
  return {
    gflop: 2 * CHAINS * lanes * terms * TURNS / 1e9,
    run() {
      const sum = loop.call(BigInt(TURNS), ones), must = terms * TURNS;
      if (sum !== must) throw new Error(`The loop of FMAs must give ${must}, received ${sum}`);
    },
  };
}
