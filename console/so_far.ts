/**
 * The best result so far of a long synchronous computation. As its thread handles no signals, a
 * worker listens for them, prints the result and ends the program.
 *
 * @module
 */

/** A result, ready to be printed. */
export interface ResultSoFar {
  /** All of it, with its last line end. */
  readonly text: string;
  /** The file that it goes to. Default: standard output. */
  readonly out?: string | undefined;
}

/** Takes the best result so far; the first call resolves once the worker listens. */
export type SoFar = (result: ResultSoFar) => Promise<void>;

/** Starts the worker with the first result, if the program has the permission to end a program. */
export function openSoFar(): SoFar {
  let worker: Worker | undefined;
  return async (result) => {
    if (Deno.permissions.querySync({ name: "run" }).state !== "granted") return;
    worker ??= new Worker(new URL("./so_far_worker.ts", import.meta.url).href, { type: "module" });
    worker.postMessage(result);
    await new Promise((resolve) => worker!.onmessage = resolve);
  };
}
