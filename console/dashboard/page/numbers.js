/**
 * Numbers for a reader, with their units.
 *
 * @module
 */

/** What stands where a number is not known. */
export const NONE = "–";

/** @type {(digits: number) => Intl.NumberFormat} */
const precise = (digits) => new Intl.NumberFormat("en-US", { maximumSignificantDigits: digits });
const THREE = precise(3), FOUR = precise(4);
const COMPACT = new Intl.NumberFormat("en-US", {
  notation: "compact",
  maximumSignificantDigits: 3,
});
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/**
 * A number with so many digits as say something; very small and large ones as 3e-5.
 *
 * @param {number | null | undefined} value
 */
export function short(value) {
  if (value === undefined || value === null || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if ((size !== 0 && size < 1e-3) || size >= 1e15) {
    return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  }
  return size >= 1e5 ? COMPACT.format(value) : FOUR.format(value);
}

/**
 * A whole number, with commas.
 *
 * @param {number | undefined} value
 */
export function whole(value) {
  return value === undefined || !Number.isFinite(value) ? NONE : WHOLE.format(value);
}

/**
 * Milliseconds as µs, ms, s, minutes or hours.
 *
 * @param {number | undefined} ms
 */
export function duration(ms) {
  if (ms === undefined || !Number.isFinite(ms)) return NONE;
  const size = Math.abs(ms);
  if (size < 1) return `${THREE.format(ms * 1000)} µs`;
  if (size < 1000) return `${THREE.format(ms)} ms`;
  if (size < 60_000) return `${THREE.format(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000), seconds = Math.floor(ms / 1000) % 60;
  if (minutes < 10) return `${minutes} min ${seconds} s`;
  if (minutes < 60) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * Bytes as KiB, MiB or GiB.
 *
 * @param {number | undefined} count
 */
export function bytes(count) {
  if (count === undefined || !Number.isFinite(count)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = count < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(count) / 10));
  return `${THREE.format(count / 1024 ** power)} ${units[power]}`;
}

/**
 * A share as per cent.
 *
 * @param {number | undefined} share 0 to 1.
 */
export function percent(share) {
  return share === undefined || !Number.isFinite(share) ? NONE : `${Math.round(100 * share)} %`;
}
