/**
 * Keeps a library loaded until the process ends.
 *
 * @module
 */

/** The system's own loader, by `Deno.build.os`: the library that has it, and its function. */
const LOADERS: Readonly<Record<string, readonly [library: string, symbol: string]>> = {
  linux: ["libc.so.6", "dlopen"],
  darwin: ["/usr/lib/libSystem.B.dylib", "dlopen"],
  windows: ["kernel32.dll", "LoadLibraryA"],
};

/** Libraries that this isolate asked for. */
const kept = new Set<string>();

/**
 * Adds a reference to the library at `path` that nothing ever gives back.
 *
 * Deno unloads the libraries of an isolate that ends. Where another thread still runs their code,
 * because a worker was terminated in the middle of a call, that would end the process.
 */
export function keepLoaded(path: string): void {
  const loader = LOADERS[Deno.build.os];
  if (kept.has(path) || loader === undefined) return;
  const [library, symbol] = loader;
  const lazily = 1; // RTLD_LAZY; LoadLibraryA takes the path alone and ignores it.
  try {
    const system = Deno.dlopen(library, {
      load: { name: symbol, parameters: ["buffer", "i32"], result: "pointer" },
    });
    system.symbols.load(new TextEncoder().encode(`${path}\0`), lazily);
    system.close();
  } catch {
    // An older system keeps its loader elsewhere. All but a terminated worker works without.
  }
  kept.add(path);
}
