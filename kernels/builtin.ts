/**
 * Features of Deno and Node that pages lack: built-in modules, which are not imported so that pages can
 * load the modules that use them, and turns of the event loop without a timer.
 *
 * @module
 */

const get: typeof process.getBuiltinModule | undefined = globalThis.process?.getBuiltinModule;

/** Returns a built-in module; an empty object in a page, where none of its functions is called. */
export const builtin = ((name: string) => get?.(name) ?? {}) as typeof process.getBuiltinModule;

/** The part of Web Locks in use; Deno's types lack it. */
interface LockManager {
  /** Calls `hold`, with null if the lock is taken, and keeps the lock until its promise settles. */
  request<T>(
    name: string,
    options: { readonly ifAvailable?: true; readonly signal?: AbortSignal },
    hold: (lock: object | null) => T | Promise<T>,
  ): Promise<T>;
}

/** Locks that all isolates of a process share. */
export const locks: LockManager = (navigator as unknown as { readonly locks: LockManager }).locks;

/** Milliseconds between two timers. */
const TIMER_MS = 200;

/**
 * Returns a function that lets other events be handled, for a loop that blocks its thread. A timer
 * takes a millisecond or more, so most turns have none; without any, signals can wait for seconds.
 */
export function eventTurns(): () => Promise<void> {
  let last = performance.now();
  return () =>
    new Promise((resolve) => {
      const isDue = performance.now() - last >= TIMER_MS;
      if (!isDue && "setImmediate" in globalThis) return void setImmediate(resolve);
      setTimeout(() => {
        last = performance.now();
        resolve();
      });
    });
}
