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
  /** Calls `hold`, without a lock where it is taken, and keeps the lock until the promise settles. */
  request(
    name: string,
    options: { readonly ifAvailable: true },
    hold: (lock: object | null) => Promise<void> | void,
  ): Promise<void>;
}

const LOCK = "troupe: the webgpu device";

/** How often a taken lock is tried again, and after how long: a worker that lets go soon has done so. */
const MAX_TRIES = 50, PAUSE_MS = 10;

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
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const release = await tryToClaim();
    if (release) return release;
    // Counted, not timed: this isolate may itself be at work meanwhile.
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  throw new Error(
    "Cannot open the webgpu device: one isolate of a process can use the GPU, received another that has it open; use isolation process",
  );
}

function tryToClaim(): Promise<(() => void) | undefined> {
  const { locks } = navigator as unknown as { readonly locks: LockManager };
  return new Promise((resolve, reject) => {
    locks.request(LOCK, { ifAvailable: true }, (lock) => {
      if (!lock || Deno.env.get(VARIABLE) === `${Deno.pid}`) return resolve(undefined);
      if (isWorker) return new Promise<void>(resolve);
      Deno.env.set(VARIABLE, `${Deno.pid}`);
      resolve(() => Deno.env.delete(VARIABLE));
    }).catch(reject);
  });
}
