/**
 * The one isolate of a process that may use the GPU.
 *
 * [Note: one isolate] ONNX Runtime's provider has one GPU device for all isolates of a process and
 * crashes when two of them call it. So the first one to open it owns it until it has closed it, and
 * any other is refused, by name and before anything is touched.
 *
 * @module
 */

/** An environment variable is the same in all isolates of a process; children inherit it. */
const VARIABLE = "TROUPE_WEBGPU_OWNER";

/** Says in {@linkcode VARIABLE} who owns the GPU: the process, so that children do not mind, and who. */
const claim = `${Deno.pid} ${crypto.randomUUID()}`;

/** How the system sets a variable that is not set yet, in one step. */
const SETTERS: Readonly<Record<string, readonly [library: string, symbol: string]>> = {
  linux: ["libc.so.6", "setenv"],
  darwin: ["/usr/lib/libSystem.B.dylib", "setenv"],
};

/**
 * Makes this isolate the owner.
 *
 * @throws {Error} when another isolate of the process is.
 */
export function claimGpu(): void {
  const owner = Deno.env.get(VARIABLE);
  // One that a parent process set, and one that somebody else left, is not of this process.
  if (owner !== undefined && !owner.startsWith(`${Deno.pid} `)) Deno.env.delete(VARIABLE);
  setUnlessSet();
  if (Deno.env.get(VARIABLE) === claim) return;
  throw new Error(
    "Cannot open the webgpu device: one isolate of a process can use the GPU, received another that has it open; use isolation process",
  );
}

/** Gives the GPU to whoever comes next. */
export function releaseGpu(): void {
  if (Deno.env.get(VARIABLE) === claim) Deno.env.delete(VARIABLE);
}

function setUnlessSet(): void {
  const setter = SETTERS[Deno.build.os];
  if (!setter) {
    if (Deno.env.get(VARIABLE) === undefined) Deno.env.set(VARIABLE, claim);
    return;
  }
  const [library, symbol] = setter, encoder = new TextEncoder();
  const system = Deno.dlopen(library, {
    set: { name: symbol, parameters: ["buffer", "buffer", "i32"], result: "i32" },
  });
  system.symbols.set(encoder.encode(`${VARIABLE}\0`), encoder.encode(`${claim}\0`), 0);
  system.close();
}
