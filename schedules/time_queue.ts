/** A queue of events by time, with events of one moment in the order in which they were added. */

import { assertInput } from "./errors.ts";

/** Events by time. */
export class TimeQueue<T> {
  /** The times, in a binary heap. */
  readonly #times: number[] = [];
  /** The events of each of them. */
  readonly #items = new Map<number, T[]>();

  /** The earliest time; undefined for an empty queue. */
  get nextTime(): number | undefined {
    return this.#times[0];
  }

  /** Adds an event. */
  add(time: number, item: T): void {
    const times = this.#times, known = this.#items.get(time);
    if (known) return void known.push(item);
    this.#items.set(time, [item]);
    let child = times.length;
    for (; child > 0; child = (child - 1) >> 1) {
      const parent = times[(child - 1) >> 1]!;
      if (parent <= time) break;
      times[child] = parent;
    }
    times[child] = time;
  }

  /**
   * Removes all events of the earliest time.
   *
   * @throws {RangeError} if the queue is empty.
   */
  take(): { time: number; items: T[] } {
    const times = this.#times, time = this.nextTime, last = times.pop();
    const cannot = "take an event";
    assertInput(
      time !== undefined && last !== undefined,
      cannot,
      "the queue must hold one",
      "none",
    );
    const items = this.#items.get(time)!;
    this.#items.delete(time);
    let parent = 0;
    for (let child = 1; child < times.length; child = 2 * parent + 1) {
      if (times[child + 1]! < times[child]!) child++;
      if (times[child]! >= last) break;
      times[parent] = times[child]!;
      parent = child;
    }
    if (times.length > 0) times[parent] = last;
    return { time, items };
  }
}
