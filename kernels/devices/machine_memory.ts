/**
 * What this machine can hold, so that what cannot fit is told before it is allocated.
 *
 * @module
 */

/**
 * Bytes of memory of this machine, swap included; Infinity where Deno may not ask.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { machineMemory } from "@troupe/troupe/kernels";
 *
 * assert.ok(machineMemory() > 2 ** 28);
 * ```
 */
export function machineMemory(): number {
  try {
    const { total, swapTotal } = Deno.systemMemoryInfo();
    return total + swapTotal;
  } catch {
    return Infinity;
  }
}

/**
 * Refuses what is larger than all memory of this machine.
 *
 * @param what needs the bytes, for the message: "Cannot train".
 * @throws {RangeError} with both sizes.
 */
export function assertMachineHolds(what: string, bytes: number): void {
  const held = machineMemory();
  if (bytes <= held) return;
  throw new RangeError(
    `${what}: it must fit into the ${gibibytes(held)} of this machine, received ${
      gibibytes(bytes)
    }`,
  );
}

const gibibytes = (bytes: number) => `${(bytes / 2 ** 30).toPrecision(3)} GiB`;

/**
 * Bytes for a person.
 *
 * @param round of hundredths: downwards for a limit, as what does not fit should not look as if it did.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mebibytes } from "@troupe/troupe/kernels";
 *
 * assert.equal(mebibytes(1.5 * 2 ** 20), "1.50 MiB");
 * assert.equal(mebibytes(2 ** 30 - 16, Math.floor), "1023.99 MiB");
 * ```
 */
export function mebibytes(bytes: number, round: (x: number) => number = Math.round): string {
  return `${(round(bytes / 2 ** 20 * 100) / 100).toFixed(2)} MiB`;
}
