/** A queue of events by time: a binary heap of moments, the events of each in order of arrival. */

/** Events by time. */
export class TimeQueue<T> {
  readonly #heap: number[] = [];
  readonly #items = new Map<number, T[]>();

  /** The number of moments at which something happens. */
  get size(): number {
    return this.#heap.length;
  }

  /** The earliest moment; undefined for an empty queue. */
  get nextTime(): number | undefined {
    return this.#heap[0];
  }

  /** Adds an event. */
  add(time: number, item: T): void {
    const items = this.#items.get(time);
    if (items !== undefined) {
      items.push(item);
      return;
    }
    this.#items.set(time, [item]);
    const heap = this.#heap;
    let child = heap.push(time) - 1;
    while (child > 0) {
      const parent = (child - 1) >> 1;
      if ((heap[parent] as number) <= time) break;
      heap[child] = heap[parent] as number;
      child = parent;
    }
    heap[child] = time;
  }

  /**
   * Removes the earliest moment with all its events.
   *
   * @throws {RangeError} if the queue is empty.
   */
  take(): { time: number; items: T[] } {
    const heap = this.#heap;
    const time = heap[0];
    if (time === undefined) {
      throw new RangeError("Cannot take an event: the queue must hold one, received none");
    }
    const moved = heap.pop() as number;
    const size = heap.length;
    let parent = 0;
    while (size > 0) {
      let child = 2 * parent + 1;
      if (child + 1 < size && (heap[child + 1] as number) < (heap[child] as number)) child++;
      if (child >= size || (heap[child] as number) >= moved) break;
      heap[parent] = heap[child] as number;
      parent = child;
    }
    if (size > 0) heap[parent] = moved;
    const items = this.#items.get(time) as T[];
    this.#items.delete(time);
    return { time, items };
  }
}
