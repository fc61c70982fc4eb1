/**
 * Watches data for micro-batches that do not come.
 *
 * @module
 */

import { nameError } from "../../../kernels/mod.ts";
import type { TrainEvent } from "../train_event.ts";

type WaitEvent = Extract<TrainEvent, { type: "wait" }>;

/** Time after which a micro-batch that does not come is reported. */
const WAIT_SECONDS = 30;

/** Reports each micro-batch that does not come in time, once. */
export class DataWatch {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #report = (_: WaitEvent): void => {};

  /** @param announce gets the reports in words. */
  constructor(readonly announce: (line: string) => void) {}

  /** The data is asked for a micro-batch. */
  ask(step: number, microBatch: number): void {
    this.#timer = setTimeout(() => {
      const what = `step ${step} waits for its micro-batch ${microBatch}`;
      this.announce(`The data has not answered for ${WAIT_SECONDS} s: ${what}`);
      this.#report({ type: "wait", step, microBatch });
    }, 1000 * WAIT_SECONDS);
  }

  /** It has answered, or nothing is waited for any more. @returns whether it was asked. */
  answered(): boolean {
    const isAsked = this.#timer !== undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    return isAsked;
  }

  /** Yields the reports until a promise is settled; returns its value. */
  async *until<T>(coming: Promise<T>): AsyncGenerator<WaitEvent, T> {
    for (;;) {
      const { promise, resolve } = Promise.withResolvers<WaitEvent | undefined>();
      this.#report = resolve;
      coming.then(() => resolve(undefined), () => resolve(undefined));
      const event = await promise;
      if (!event) return await coming;
      yield event;
    }
  }
}

/** Names in an error of the data the micro-batch that was asked for, unless it does so itself. */
export function nameDataError(cause: unknown, step: number, microBatch: number): unknown {
  const name = `micro-batch ${microBatch} of step ${step}`;
  return String(cause).includes(name) ? cause : nameError(`Cannot take ${name}`, cause);
}
