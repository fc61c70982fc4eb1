/**
 * A first-in first-out queue over a circular array: push and shift cost the same at any length,
 * where `Array.prototype.shift` moves every element that is left.
 *
 * @module
 */

const FIRST_CAPACITY = 16;

/** A growing circular queue. */
export class Ring<T> {
  #items: (T | undefined)[] = new Array(FIRST_CAPACITY);
  #head = 0;
  #length = 0;

  /** Number of elements held. */
  get length(): number {
    return this.#length;
  }

  /** Adds an element at the end. */
  push(item: T): void {
    if (this.#length === this.#items.length) this.#resize(2 * this.#length);
    this.#items[this.#slot(this.#length++)] = item;
  }

  /** The element at `index` from the front, or undefined past the end. */
  at(index: number): T | undefined {
    return index < this.#length ? this.#items[this.#slot(index)] : undefined;
  }

  /** Removes and returns the front element. */
  shift(): T | undefined {
    if (this.#length === 0) return undefined;
    const item = this.#items[this.#head];
    this.#items[this.#head] = undefined;
    this.#head = this.#slot(1);
    if (--this.#length === 0 && this.#items.length > FIRST_CAPACITY) this.#resize(FIRST_CAPACITY);
    return item;
  }

  /** Removes `item`, wherever it stands, and says whether it was there. Linear in the length. */
  remove(item: T): boolean {
    if (this.at(0) === item) return this.shift() !== undefined;
    let index = 1;
    while (index < this.#length && this.at(index) !== item) index++;
    if (index >= this.#length) return false;
    for (; index < this.#length - 1; index++) {
      this.#items[this.#slot(index)] = this.at(index + 1);
    }
    this.#items[this.#slot(--this.#length)] = undefined;
    return true;
  }

  /** The elements, front first. */
  *[Symbol.iterator](): IterableIterator<T> {
    for (let index = 0; index < this.#length; index++) yield this.at(index)!;
  }

  #slot(index: number): number {
    // The capacity is a power of two.
    return (this.#head + index) & (this.#items.length - 1);
  }

  #resize(capacity: number): void {
    const items: (T | undefined)[] = new Array(capacity);
    for (let index = 0; index < this.#length; index++) items[index] = this.at(index);
    this.#items = items;
    this.#head = 0;
  }
}
