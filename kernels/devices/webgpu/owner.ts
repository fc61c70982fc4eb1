/**
 * The one isolate of a process that may use the GPU.
 *
 * [Note: one isolate] ONNX Runtime's provider has one GPU device for all isolates of a process and
 * crashes when two of them call it. So the first one to open it owns it until it has closed it, and
 * any other is refused, by name and before anything is touched. A Web Lock is the same for all
 * isolates of a process and for none of its children, and a worker that is terminated loses it when its
 * last call has returned. But who holds one does not come to its end by itself. So only workers, which
 * never do, hold it; the main isolate, which lives as long as the process, leaves a word instead.
 *
 * @module
 */

/** Web Locks, as far as they are used here; the types that come with Deno lack them. */
interface LockManager {
  /**
   * Calls `hold` when the lock is free and keeps it until the promise returned settles.
   *
   * @throws {DOMException} (as a rejection) when aborted before the lock is free.
   */
  request(
    name: string,
    options: { readonly signal: AbortSignal },
    hold: () => Promise<void> | void,
  ): Promise<void>;
}

const LOCK = "troupe: the webgpu device";

/** A worker that lets go has done so within this time. */
const GRACE_MS = 500;

/** The main isolate's word: the number of its process. Children inherit it, and have other numbers. */
const VARIABLE = "TROUPE_WEBGPU_OWNER";

const isWorker = "DedicatedWorkerGlobalScope" in globalThis;

/**
 * Makes this isolate the owner, which it must not be yet.
 *
 * @returns what gives the GPU to whoever comes next.
 * @throws {Error} when another isolate of the process is.
 */
export async function claimGpu(): Promise<() => void> {
  const { locks } = navigator as unknown as { readonly locks: LockManager };
  const release = await new Promise<(() => void) | undefined>((resolve) => {
    locks.request(LOCK, { signal: AbortSignal.timeout(GRACE_MS) }, () => {
      if (Deno.env.get(VARIABLE) === `${Deno.pid}`) return resolve(undefined);
      if (isWorker) return new Promise<void>(resolve);
      Deno.env.set(VARIABLE, `${Deno.pid}`);
      resolve(() => Deno.env.delete(VARIABLE));
    }).catch(() => resolve(undefined));
  });
  if (release) return release;
  throw new Error(
    "Cannot open the webgpu device: one isolate of a process can use the GPU, received another that has it open; use isolation process",
  );
}
