/**
 * SIGHUP: the terminal is gone. `nohup` starts programs that ignore it.
 *
 * @module
 */

/** Of POSIX. */
const SIGHUP = 1, SIG_IGN = 1n;

/** More than `struct sigaction` takes anywhere; its first member is the handler. */
const SIGACTION_BYTES = 256;

/**
 * Whether this program was started with SIGHUP ignored. Deno does not tell, so the C library is asked;
 * where that cannot be, as on Windows, the answer is no.
 *
 * Must be asked before the first listener for any signal is added: then Deno takes SIGHUP over.
 */
export function isHangUpIgnored(): boolean {
  try {
    const path = Deno.build.os === "darwin" ? "libSystem.dylib" : "libc.so.6";
    const library = Deno.dlopen(path, {
      sigaction: { parameters: ["i32", "pointer", "buffer"], result: "i32" },
    });
    const now = new BigUint64Array(SIGACTION_BYTES / 8);
    const result = library.symbols.sigaction(SIGHUP, null, now);
    library.close();
    return result === 0 && now[0] === SIG_IGN;
  } catch {
    return false;
  }
}
