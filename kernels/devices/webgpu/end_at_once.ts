/**
 * The end of a process whose GPU may still be at work.
 *
 * [Note: no destructors] When a process ends, the C library calls the destructors of all libraries,
 * and those of the GPU's driver take away what its threads work with: a process with GPU work pending
 * crashes at its end, with the signal in place of its exit code. Not every end can be waited for: an
 * uncaught error, or an isolate that was terminated, gives nobody a turn. The system itself takes back
 * all that a process held on the GPU. So once the GPU has been opened, destructors that were there by
 * then are left out: what they would do, flushing and freeing, is done or not needed.
 *
 * @module
 */

/** glibc calls `on_exit` handlers with the exit code, the last one first; `_exit` ends there. */
const SYMBOLS = {
  on_exit: { parameters: ["pointer", "pointer"], result: "i32" },
  _exit: { type: "pointer" },
} as const;

/** From here on the process ends without destructors, with its exit code, where the system can. */
export function endAtOnce(): void {
  if (Deno.build.os !== "linux") return;
  try {
    const system = Deno.dlopen("libc.so.6", SYMBOLS);
    system.symbols.on_exit(system.symbols._exit, null);
    system.close();
  } catch {
    // A program that may load one library only has to close its devices before it ends.
  }
}
