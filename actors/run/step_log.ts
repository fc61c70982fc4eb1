/**
 * The log of the steps of a run that are repeated if its workers restart.
 *
 * @module
 */

import type { StepRequest } from "../pipeline/step.ts";
import type { Engine } from "./engine.ts";

/** Limit of the bytes of logged steps that a newer snapshot has made unnecessary. */
export const KEPT_BYTES = 2 ** 24;

/** Bytes of a record, and of an array without its numbers: resident memory of many small ones, of
 * which V8's heap has 70 and 200. */
const RECORD_BYTES = 128, ARRAY_BYTES = 448;

/** The steps since the base, or since the snapshot if there is no base. */
export class StepLog {
  /** Limit of {@linkcode isFull}. */
  limitBytes = KEPT_BYTES;
  /** True if steps were dropped because they took too many bytes. */
  areLost = false;
  #steps: (StepRequest | "drained")[] = [];
  #bytes = 0;
  #dropped = 0;

  /** Position of the first step, counted over all steps of the run. */
  get start(): number {
    return this.#dropped;
  }

  /** Position of the next step. */
  get end(): number {
    return this.#dropped + this.#steps.length;
  }

  /** Returns whether the steps take more bytes than the limit. */
  get isFull(): boolean {
    return this.#bytes > this.limitBytes;
  }

  /** Adds a step. */
  add(request: StepRequest): void {
    if (this.areLost) return void this.#dropped++;
    this.#steps.push(request);
    this.#bytes += bytesOf(request);
  }

  /** Notes that the pipe ran empty: steps repeated in a full pipe would have other bits. */
  addDrain(): void {
    if (!this.areLost && this.#steps.length > 0) this.#steps.push("drained");
  }

  /** Drops the steps before a position. */
  dropBefore(position: number): void {
    for (const step of this.#steps.splice(0, position - this.#dropped)) {
      if (step !== "drained") this.#bytes -= bytesOf(step);
      this.#dropped++;
    }
  }

  /** Returns the steps from a position on. */
  since(position: number): readonly (StepRequest | "drained")[] {
    return this.#steps.slice(position - this.#dropped);
  }

  /**
   * Takes the steps from a position on again.
   *
   * @param first Steps from the position on, if a newer checkpoint may have dropped them from the log.
   */
  async repeat(engine: Engine, position: number, first: ReturnType<StepLog["since"]>) {
    for (const request of [...first, ...this.since(position + first.length)]) {
      if (request === "drained") {
        await engine.drain();
        continue;
      }
      const step = engine.step(request);
      if (engine.ahead === 0) await step;
      // It ends after later steps have begun; if it fails, they fail too.
      else step.catch(() => {});
    }
  }
}

/**
 * Returns the bytes of a step without the numbers of its fields.
 *
 * @param fields fields of a micro-batch.
 */
export const overheadBytes = (microBatches: number, fields: number): number =>
  RECORD_BYTES + microBatches * (RECORD_BYTES + fields * ARRAY_BYTES);

function bytesOf({ microBatches }: StepRequest): number {
  // A field may also be a text or a number.
  const sizes = microBatches.flatMap((fields) => Object.values<unknown>(fields))
    .map((value) => ArrayBuffer.isView(value) ? value.byteLength : 2 * String(value).length);
  const bytes = sizes.reduce((sum, one) => sum + one, ARRAY_BYTES * sizes.length);
  return bytes + overheadBytes(microBatches.length, 0);
}
