/** What communication costs by the latency-bandwidth model that Chimera's section 3.4 uses. */

/** A link by the α-β model: `latencyMs` is α, `1 / bytesPerMs` is β. */
export interface LinkModel {
  /** Milliseconds of a message without bytes. */
  readonly latencyMs: number;
  /** Bytes that arrive in a millisecond. */
  readonly bytesPerMs: number;
}

/**
 * Milliseconds of one message: α + βL.
 *
 * @throws {RangeError} if the link or the bytes cannot be (negative, or no bandwidth).
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { messageMs } from "@troupe/troupe/schedules";
 *
 * strictEqual(messageMs(4e6, { latencyMs: 0.5, bytesPerMs: 1e6 }), 4.5);
 * ```
 */
export function messageMs(bytes: number, link: LinkModel): number {
  checkModel("the bytes of a message", bytes, bytes >= 0, "at least 0");
  const { latencyMs, bytesPerMs } = link;
  checkModel("the latency of a link", latencyMs, latencyMs >= 0, "at least 0");
  checkModel("the bytes per ms of a link", bytesPerMs, bytesPerMs > 0, "more than 0");
  return latencyMs + bytes / bytesPerMs;
}

/**
 * Milliseconds of an all-reduce by Rabenseifner's algorithm over `copies` of the same gradients:
 * 2 log2(r) α + 2 (r-1)/r βL (Chimera, section 3.4). One copy has nothing to send.
 *
 * @throws {RangeError} if the link, the bytes or the number of copies cannot be.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { rabenseifnerMs } from "@troupe/troupe/schedules";
 *
 * strictEqual(rabenseifnerMs(8e6, 4, { latencyMs: 1, bytesPerMs: 1e6 }), 16);
 * ```
 */
export function rabenseifnerMs(bytes: number, copies: number, link: LinkModel): number {
  const whole = Number.isInteger(copies) && copies >= 1;
  checkModel("the copies of an all-reduce", copies, whole, "a whole number from 1");
  const { latencyMs } = link;
  const bandwidthMs = messageMs(bytes, link) - latencyMs;
  return 2 * Math.log2(copies) * latencyMs + 2 * (copies - 1) / copies * bandwidthMs;
}

/**
 * Refuses a number that a model cannot take.
 *
 * @throws {RangeError} unless `isServed`.
 */
export function checkModel(name: string, value: number, isServed: boolean, must: string): void {
  if (isServed && Number.isFinite(value)) return;
  throw new RangeError(`Cannot use the model: ${name} must be ${must}, received ${value}`);
}
