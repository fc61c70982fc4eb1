/**
 * The limits of a confined process, watched from the root: the time that one step takes, and the
 * memory that all of it holds.
 *
 * @module
 */

import type { Confinement } from "../confinement.ts";
import { memoryOf } from "./memory.ts";
import type { Sign } from "./signs.ts";

/** How often the root looks, in milliseconds. */
const LOOK_MS = 50;

/** Most milliseconds between two calls. */
const CALL_MS = 1000;

/** How long a process may take until it says its first word: no code of the package runs before. */
const BEGIN_LIMIT_MS = 60_000;

/** What the watch of a process needs. */
export interface Watched {
  /** Number of its process; absent where it has none of its own. */
  readonly pid?: number;
  readonly limits: Confinement;
  /** What it has done that it must not, where that is known. */
  readonly look?: () => string | undefined;
  /** Has the process give a sign. */
  readonly call: () => void;
  /** Called once, with what it has exceeded. */
  readonly exceed: (what: string) => void;
}

/** Watches one process. */
export class LimitsWatch {
  readonly #watched: Watched;
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #callMs: number;
  /** The last sign that it gave. */
  #last: Sign | undefined;
  /** A call that is not answered. */
  #isCalled = false;
  /** For how long it has been in one step, or has not answered, in time in which the root itself
   * could look. */
  #spentMs = 0;
  #sinceCallMs = Infinity;
  #lookedAt = performance.now();
  #isLooking = false;

  /** Begins to watch. */
  constructor(watched: Watched) {
    this.#watched = watched;
    this.#callMs = Math.min(watched.limits.stepLimitMs / 4, CALL_MS);
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
  }

  /** It has given a sign. */
  hear(sign: Sign): void {
    this.#isCalled = false;
    if (!this.#last || !sign.isAtWork || sign.steps !== this.#last.steps) this.#spentMs = 0;
    this.#last = sign;
  }

  /** Watches no longer. */
  close(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    const now = performance.now();
    // While the root was busy itself, or the machine asleep, an answer may have waited.
    const passedMs = Math.min(now - this.#lookedAt, 2 * LOOK_MS);
    this.#lookedAt = now;
    if (this.#isCalled || this.#last?.isAtWork) this.#spentMs += passedMs;
    this.#sinceCallMs += passedMs;
    const { limits: { stepLimitMs, memoryLimitMb }, look, call, exceed, pid } = this.#watched;
    const seen = look?.();
    if (seen !== undefined) return exceed(seen);
    if (!this.#last && this.#spentMs > BEGIN_LIMIT_MS) {
      return exceed(`it must begin within ${BEGIN_LIMIT_MS} ms`);
    }
    if (this.#last && this.#spentMs > stepLimitMs) {
      return exceed(`one step must take at most ${stepLimitMs} ms`);
    }
    if (!this.#isCalled && this.#sinceCallMs >= this.#callMs) {
      this.#isCalled = true;
      this.#sinceCallMs = 0;
      call();
    }
    if (this.#isLooking || pid === undefined) return;
    this.#isLooking = true;
    const heldMb = await memoryOf(pid).catch(() => undefined);
    this.#isLooking = false;
    if (heldMb === undefined) return exceed("its memory must be readable, in /proc or by ps");
    if (heldMb > memoryLimitMb) {
      exceed(`it must hold at most ${memoryLimitMb} MiB of memory, and held ${Math.ceil(heldMb)}`);
    }
  }
}
