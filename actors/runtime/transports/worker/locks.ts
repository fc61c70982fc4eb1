/**
 * Web Locks, as far as they are used here; the types that come with Deno lack them.
 *
 * @module
 */

interface LockManager {
  /** Calls `hold` when the lock is free and keeps it until the promise returned settles. */
  request(name: string, hold: () => unknown): Promise<unknown>;
  /** @throws {DOMException} (as a rejection) when aborted before the lock is free. */
  request(name: string, options: { signal: AbortSignal }, hold: () => unknown): Promise<unknown>;
}

/** The locks of this process. */
export const locks: LockManager = (navigator as unknown as { locks: LockManager }).locks;
