/**
 * What the root and a confined process say to each other beside the frames of the system: whether it
 * still handles what it gets.
 *
 * [Note: a step that does not end] The root asks again and again. Whoever loops without a turn of the
 * event loop does not answer; whoever waits for what never comes answers that it is still in the same
 * step. Neither needs the good will of the actor: to lie, it must go on answering, and gets nothing
 * by it but a core, which it could keep busy step by step just as well.
 *
 * @module
 */

/** Asks for a {@linkcode Sign}. */
export interface Call {
  readonly kind: "call";
}

/** How far the process is. */
export interface Sign {
  readonly kind: "sign";
  /** Steps that it has begun or resumed. */
  readonly steps: number;
  /** The last of them goes on, and does not wait for an answer. */
  readonly isAtWork: boolean;
}

/** Tells a sign from the frames of the system. */
export function isSign(frame: unknown): frame is Sign {
  return (frame as { kind?: unknown } | null)?.kind === "sign";
}

/** Tells a call from the frames of the system. */
export function isCall(frame: unknown): frame is Call {
  return (frame as { kind?: unknown } | null)?.kind === "call";
}
