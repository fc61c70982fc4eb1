/**
 * Lists of bounded size, which drop or merge entries.
 *
 * @module
 */

/**
 * A list of at most `most` entries. When it is full, each pair of neighbours becomes one; from then
 * on, each entry represents twice the number of added entries.
 */
export class ThinnedList<T> {
  entries: T[] = [];
  /** Added entries that each kept entry represents, and that the last one represents now. */
  #stride = 1;
  #lastCount = 1;

  /**
   * @param choose returns one of two neighbours, or both as one.
   * @param merge returns an entry together with the last one, if they are one.
   */
  constructor(
    private readonly most: number,
    private readonly choose: (first: T, second: T) => T,
    private readonly merge: (last: T, entry: T) => T | undefined = () => undefined,
  ) {}

  add(entry: T): number {
    const { entries, choose } = this, newest = entries.at(-1);
    const merged = newest && this.merge(newest, entry);
    if (merged) return entries[entries.length - 1] = merged, entries.length - 1;
    if (this.#lastCount < this.#stride) {
      this.#lastCount++;
      entries.push(choose(entries.pop()!, entry));
      return entries.length - 1;
    }
    this.#lastCount = 1;
    if (entries.push(entry) <= this.most) return entries.length - 1;
    const last = entries.pop()!;
    this.entries = Array.from(
      { length: Math.floor(entries.length / 2) },
      (_, i) => choose(entries[2 * i]!, entries[2 * i + 1]!),
    );
    this.entries.push(last);
    this.#stride *= 2;
    return 0;
  }
}

/** A list of at most `most` entries, which drops the older half when it is full. */
export class RecentList<T> {
  /** Entries in order, the newest last. */
  entries: T[] = [];

  constructor(private readonly most: number) {}

  /** Adds an entry; returns the first changed index. */
  add(entry: T): number {
    if (this.entries.push(entry) <= this.most) return this.entries.length - 1;
    this.entries = this.entries.slice(-Math.ceil(this.most / 2));
    return 0;
  }
}
