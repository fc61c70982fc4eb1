/**
 * Builds the WebAssembly module of the kernels from their source: `deno task simd`.
 *
 * @module
 */

import asc from "assemblyscript/asc";
import { deflateRawSync } from "node:zlib";

/** File of the module: text, so that it can be imported from any location. */
const MODULE_FILE = new URL("./simd_module.ts", import.meta.url);

/**
 * Options of the compiler: memory is imported and shared, up to 4 GiB; the module has none. It has at
 * least one page, since each load from less takes a second comparison where addresses are checked.
 */
const OPTIONS = [
  ...["-O3", "--noAssert", "--runtime", "stub", "--use", "abort="],
  ...["--importMemory", "--noExportMemory", "--sharedMemory", "--initialMemory", "1"],
  ...["--maximumMemory", "65536"],
  ...["--enable", "simd", "--enable", "relaxed-simd", "--enable", "threads"],
];

/**
 * Builds the module.
 *
 * @throws {Error} with the compiler's output when the source does not compile.
 */
export async function buildKernels(): Promise<Uint8Array> {
  const written = new Map<string, Uint8Array>();
  const { error, stderr } = await asc.main(
    ["kernels.ts", "--outFile", "kernels.wasm", ...OPTIONS],
    {
      // The sources end in .as, because they are not TypeScript.
      async readFile(name) {
        const path = new URL(name.replace(/\.ts$/, ".as"), import.meta.url);
        return await Deno.readTextFile(path).catch(() => null);
      },
      writeFile: (name, contents) => void written.set(name, contents as Uint8Array),
      listFiles: () => [],
    },
  );
  if (error) throw new Error(`Cannot build the kernels: ${stderr}`, { cause: error });
  return written.get("kernels.wasm")!;
}

/** Returns the text of {@linkcode MODULE_FILE}. */
function moduleText(module: Uint8Array): string {
  const compressed = new Uint8Array(deflateRawSync(module, { level: 9 }));
  const lines = compressed.toBase64().match(/.{1,96}/g)!;
  return `/** Compressed module, built from *.as by \`deno task simd\`: do not edit. */
export const KERNELS_MODULE = \`
${lines.join("\n")}
\`;
`;
}

if (import.meta.main) await Deno.writeTextFile(MODULE_FILE, moduleText(await buildKernels()));
