/**
 * A door that closes behind whoever is still inside.
 *
 * @module
 */

/** Calls `release` once: when it was closed and nothing that entered is still inside. */
export class Gate {
  #inside = 0;
  #closed = false;
  #release: () => void;

  constructor(release: () => void) {
    this.#release = release;
  }

  get closed(): boolean {
    return this.#closed;
  }

  enter(): void {
    this.#inside++;
  }

  leave(): void {
    if (--this.#inside === 0 && this.#closed) this.#release();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#inside === 0) this.#release();
  }
}
