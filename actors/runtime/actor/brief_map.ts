/**
 * A map for what comes and goes all the time.
 *
 * @module
 */

/**
 * A map that moves to a new table whenever most of its entries have gone.
 *
 * [Note: tables that stay] When V8's Map shrinks or makes room, its old table keeps a reference to
 * the new one, for iterators. Once one table has become old enough for the collector of young
 * garbage to leave it alone, it keeps all that follow alive, with what was in them: some kilobytes
 * for each step of training, until a full collection. A new map ends that chain; an entry is copied
 * once for each that is taken at the most.
 */
export class BriefMap<K, V> implements Iterable<[K, V]> {
  #map = new Map<K, V>();
  /** Entries taken since the map is new. */
  #taken = 0;

  /** The number of entries. */
  get size(): number {
    return this.#map.size;
  }

  /** The value of a key, if there is one. */
  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  /** Whether a key has a value. */
  has(key: K): boolean {
    return this.#map.has(key);
  }

  /** Gives a key a value. */
  set(key: K, value: V): void {
    this.#map.set(key, value);
  }

  /** Takes a key out; returns its value. */
  take(key: K): V | undefined {
    const value = this.#map.get(key);
    if (this.#map.delete(key) && ++this.#taken > this.#map.size) {
      this.#map = new Map(this.#map);
      this.#taken = 0;
    }
    return value;
  }

  /** The values in the order in which their keys came. */
  values(): IterableIterator<V> {
    return this.#map.values();
  }

  /** The entries in the order in which their keys came. */
  [Symbol.iterator](): IterableIterator<[K, V]> {
    return this.#map[Symbol.iterator]();
  }
}
