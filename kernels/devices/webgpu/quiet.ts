/**
 * Keeps libraries from writing where a program tells what went wrong.
 *
 * The loader of Vulkan, its drivers and Dawn write to the standard error of the process, past all that
 * could be set: of a display that is not there, of a conformance that a driver lacks, of each adapter
 * that is not taken. What matters of it is in the error that is thrown.
 *
 * @module
 */

/** Of POSIX, by `Deno.build.os`. */
const SYSTEMS: Readonly<Record<string, string>> = {
  linux: "libc.so.6",
  darwin: "/usr/lib/libSystem.B.dylib",
};

const SYMBOLS = {
  open: { parameters: ["buffer", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
  dup: { parameters: ["i32"], result: "i32" },
  dup2: { parameters: ["i32", "i32"], result: "i32" },
} as const;

const STDERR = 2, WRITE_ONLY = 1;

/**
 * Runs what must not write to standard error; nothing else of this process can meanwhile. Where the
 * system is another, or this program may not call it, it may write.
 */
export function quietly<T>(run: () => T): T {
  const loud = silence();
  try {
    return run();
  } finally {
    loud();
  }
}

/** Returns what lets the process write to standard error again. */
function silence(): () => void {
  const library = SYSTEMS[Deno.build.os];
  if (library === undefined) return () => {};
  let system: Deno.DynamicLibrary<typeof SYMBOLS>;
  try {
    system = Deno.dlopen(library, SYMBOLS);
  } catch {
    return () => {};
  }
  const { open, close, dup, dup2 } = system.symbols;
  const kept = dup(STDERR), nowhere = open(new TextEncoder().encode("/dev/null\0"), WRITE_ONLY);
  if (kept >= 0 && nowhere >= 0) dup2(nowhere, STDERR);
  if (nowhere >= 0) close(nowhere);
  return () => {
    if (kept >= 0) {
      dup2(kept, STDERR);
      close(kept);
    }
    system.close();
  };
}
