/** Round numbers for an axis. */

/** The step between ticks: 1, 2 or 5 times a power of ten, so that at most `most` ticks fit. */
export function tickStep(range: number, most: number): number {
  if (range <= 0) return 1;
  const least = range / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10);
}

/** The ticks from 0 to `range`, and their step. */
export function ticks(range: number, most: number): number[] {
  const step = tickStep(range, most);
  return Array.from({ length: Math.floor(range / step + 1e-9) + 1 }, (_, i) => i * step);
}

/** A number for a person: at most three digits after the point, none that say nothing. */
export function shortNumber(value: number): string {
  return String(Number(value.toFixed(3)));
}
