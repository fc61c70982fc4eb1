/**
 * Of some names, the one that was probably meant.
 *
 * @module
 */

/** What was probably meant, as the end of a sentence; empty where nothing is near. */
export function didYouMean(text: string, names: readonly string[]): string {
  const near = names.map((name) => ({ name, distance: distance(text, name) }))
    .filter(({ name, distance }) => distance <= Math.max(2, name.length / 3))
    .sort((a, b) => a.distance - b.distance)[0];
  return near ? `; did you mean ${near.name}?` : "";
}

/** Insertions, deletions and changes of letters between two words, whatever their case (Levenshtein). */
function distance(one: string, other: string): number {
  const a = one.toLowerCase().slice(0, 100), b = other.toLowerCase();
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
