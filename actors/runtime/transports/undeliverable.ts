/**
 * Frames that cannot be delivered: who waits for what comes of them is let know.
 *
 * @module
 */

import { type DeadLetter, goneFailure } from "../failure.ts";
import type { Frame, SwitchFrame } from "./wire.ts";

/**
 * Makes a frame a dead letter, if it holds one.
 *
 * @param why it cannot be sent. Absent: the isolate that it is for never was.
 * @returns what to tell the isolate `to` that waits.
 */
export function buryFrame(
  onDeadLetter: (letter: DeadLetter, message?: unknown) => void,
  frame: Frame | SwitchFrame,
  why?: string,
): { readonly to: number; readonly frame: Frame } | undefined {
  const isCloneable = why === undefined;
  const reason = isCloneable ? "no-such-actor" : "not-cloneable";
  if (frame.kind === "message") {
    const { from, to, message, replyTo } = frame;
    onDeadLetter(
      { from: from.id, to: to.id, type: message.type, reason },
      isCloneable ? message : undefined,
    );
    const outcome = why === undefined
      ? { status: "gone", failure: goneFailure(to.id) } as const
      : { status: "unsent", why } as const;
    return replyTo &&
      { to: replyTo.isolate, frame: { kind: "answer", ask: replyTo.ask, outcome } };
  }
  if (frame.kind === "watch") {
    return { to: frame.by, frame: { kind: "down", ref: frame.ref, reason: "stopped" } };
  }
  if (frame.kind === "answer" && frame.letter) onDeadLetter({ ...frame.letter, reason });
}
