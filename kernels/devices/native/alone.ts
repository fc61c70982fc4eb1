/**
 * What one isolate of a process does at a time.
 *
 * @module
 */

/** Web Locks, as far as they are used here; the types that come with Deno lack them. */
interface LockManager {
  /** Calls `hold` when the lock is free, and keeps it meanwhile. */
  request<T>(name: string, hold: () => T): Promise<T>;
}

const LOCK = "troupe: the native device";

/**
 * Does something while no other isolate of the process does: a Web Lock is the same for all of them,
 * and a worker that is terminated loses it.
 */
export async function alone<T>(action: () => T): Promise<T> {
  const { locks } = navigator as unknown as { readonly locks: LockManager };
  return await locks.request(LOCK, action);
}
