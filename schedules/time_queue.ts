/** A queue of events by time, with events of one moment in the order in which they were added. */

import { assertInput } from "./errors.ts";

/**
 * Events by time. Few are ahead at a time, messages on their way and one for each worker, so a sorted
 * array is as fast as a heap.
 */
export class TimeQueue<T> {
  /** The earliest is last; of those of one moment, the first that was added. */
  readonly #events: { readonly time: number; readonly item: T }[] = [];

  /** The number of events. */
  get size(): number {
    return this.#events.length;
  }

  /** The earliest time; undefined for an empty queue. */
  get nextTime(): number | undefined {
    return this.#events.at(-1)?.time;
  }

  /** Adds an event. */
  add(time: number, item: T): void {
    let index = 0;
    for (let end = this.#events.length; index < end;) {
      const middle = (index + end) >> 1;
      if (this.#events[middle]!.time > time) index = middle + 1;
      else end = middle;
    }
    this.#events.splice(index, 0, { time, item });
  }

  /**
   * Removes all events of the earliest time.
   *
   * @throws {RangeError} if the queue is empty.
   */
  take(): { time: number; items: T[] } {
    const time = this.nextTime, items: T[] = [];
    assertInput(time !== undefined, "take an event", "the queue must hold one", "none");
    while (this.nextTime === time) items.push(this.#events.pop()!.item);
    return { time, items };
  }
}
