/**
 * Faults that a run is asked to suffer, so that recovery can be tested on real workers.
 *
 * @module
 */

/** One worker fails once, as it begins its nth action of training. */
export interface WorkerFault {
  /** The worker, counted over all data-parallel replicas. */
  readonly worker: number;
  /** Its actions before that, counted from its start. */
  readonly afterActions: number;
  /**
   * `throw`: its handler throws. `exit`: it calls `Deno.exit`. `close`: it closes itself. `loop`: it
   * never comes back. `memory`: it takes all memory that it can get. Of a worker that is no process
   * of its own, `memory` ends the whole program, and `loop` leaves a thread that cannot be ended.
   */
  readonly kind: "throw" | "exit" | "close" | "loop" | "memory";
}

/** Counts the actions of a worker, and fails when it is time. */
export function openFault(fault: WorkerFault | undefined, worker: number): () => void {
  if (!fault || fault.worker !== worker) return () => {};
  let left = fault.afterActions;
  return () => {
    if (left-- === 0) PERFORM[fault.kind]();
  };
}

/** A thread that is terminated sees it between two waits of so many milliseconds. */
const LOOP_MS = 10;

const PERFORM: Readonly<Record<WorkerFault["kind"], () => void>> = {
  throw() {
    throw new Error("a fault was asked for");
  },
  exit: () => Deno.exit(3),
  close: () => self.close(),
  loop() {
    // It takes no core from those who find out.
    const nothing = new Int32Array(new SharedArrayBuffer(4));
    for (;;) Atomics.wait(nothing, 0, 0, LOOP_MS);
  },
  memory() {
    const hog: unknown[] = [];
    for (;;) hog.push(new Array(1_000_000).fill(hog.length));
  },
};
