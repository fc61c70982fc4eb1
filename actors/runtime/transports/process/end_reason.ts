/**
 * Why a process has ended, for a person.
 *
 * @module
 */

/** What V8 ends a process with when the heap is at its limit. */
const OUT_OF_MEMORY_SIGNALS: readonly string[] = ["SIGTRAP", "SIGABRT", "SIGILL"];

/** What a status says. */
export function endReason({ code, signal }: Deno.CommandStatus): string {
  if (!signal) return `exited with code ${code}`;
  const hint = OUT_OF_MEMORY_SIGNALS.includes(signal) ? ", as when out of memory" : "";
  return `killed by ${signal}${hint}`;
}
