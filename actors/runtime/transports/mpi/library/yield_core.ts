/**
 * Polite polling.
 *
 * @module
 */

/**
 * Lets whoever else wants this core have it, and goes on at once where nobody does.
 *
 * [Note: who polls is in the way] A thread that is woken by a message is often put on the core of
 * the one that sent it. When that one goes on to poll, the other waits until its slice of time is
 * over: 4 ms for what takes 0.1.
 */
export const yieldCore: () => void = open();

function open(): () => void {
  try {
    const { symbols } = Deno.dlopen("libc.so.6", {
      sched_yield: { parameters: [], result: "i32" },
    });
    return symbols.sched_yield;
  } catch {
    // Without the permission, or on another system, polling is less polite.
    return () => {};
  }
}
