/** A queue of events by time, with events of one moment in the order in which they were added. */

import { assertInput } from "./errors.ts";

/** Events by time, in a binary heap. */
export class TimeQueue<T> {
  readonly #times: number[] = [];
  /** The serial number of each event. */
  readonly #numbers: number[] = [];
  readonly #items: T[] = [];
  #added = 0;

  /** The number of events. */
  get size(): number {
    return this.#times.length;
  }

  /** The earliest time; undefined for an empty queue. */
  get nextTime(): number | undefined {
    return this.#times[0];
  }

  /** Adds an event. */
  add(time: number, item: T): void {
    const times = this.#times, numbers = this.#numbers, items = this.#items;
    let child = times.length;
    while (child > 0) {
      const parent = (child - 1) >> 1;
      if (times[parent]! <= time) break;
      times[child] = times[parent]!;
      numbers[child] = numbers[parent]!;
      items[child] = items[parent]!;
      child = parent;
    }
    times[child] = time;
    numbers[child] = this.#added++;
    items[child] = item;
  }

  /**
   * Removes all events of the earliest time.
   *
   * @throws {RangeError} if the queue is empty.
   */
  take(): { time: number; items: T[] } {
    const time = this.nextTime, items: T[] = [];
    assertInput(time !== undefined, "take an event", "the queue must hold one", "none");
    while (this.#times[0] === time) items.push(this.#takeFirst());
    return { time, items };
  }

  #takeFirst(): T {
    const times = this.#times, numbers = this.#numbers, items = this.#items;
    const first = items[0]!, time = times.pop()!, number = numbers.pop()!, item = items.pop()!;
    const size = times.length;
    const isBefore = (index: number, time: number, number: number) =>
      times[index]! < time || (times[index] === time && numbers[index]! < number);
    if (size === 0) return first;
    let parent = 0;
    for (let child = 1; child < size; child = 2 * parent + 1) {
      if (child + 1 < size && isBefore(child + 1, times[child]!, numbers[child]!)) child++;
      if (!isBefore(child, time, number)) break;
      times[parent] = times[child]!;
      numbers[parent] = numbers[child]!;
      items[parent] = items[child]!;
      parent = child;
    }
    times[parent] = time;
    numbers[parent] = number;
    items[parent] = item;
    return first;
  }
}
