/**
 * The guard of a confined isolate: all that it sends is judged by what it was given, all that it gets
 * is noted, and what shows it others is left out.
 *
 * @module
 */

import type { BootFrame } from "../wire.ts";
import { type Capabilities, openCapabilities } from "./capabilities.ts";
import { judge, type Judgement } from "./judge.ts";
import { type Inward, screen, screenBoot } from "./screen.ts";

/** Reports of an isolate that are passed on within {@linkcode WINDOW_MS}; the rest is dropped. */
const REPORTS_MAX = 1000;
const WINDOW_MS = 1000;

/** The guard of one isolate. */
export interface Guard {
  /** What the isolate gets as its first frame. */
  readonly boot: BootFrame;
  /** The frames that it gets instead of this one. @throws {DOMException} `DataCloneError` */
  screen(frame: Inward): readonly Inward[];
  /** What comes of a frame that it sends. */
  judge(frame: unknown): Judgement;
}

/**
 * Guards an isolate from its first frame on.
 *
 * @param refused called with the id of an actor that refuses one of its messages.
 * @throws {DOMException} `DataCloneError` when the frame cannot be looked through.
 */
export function openGuard(boot: BootFrame, refused: (by: string) => void): Guard {
  const caps: Capabilities = openCapabilities(boot.launch), mayReport = openThrottle();
  return {
    boot: screenBoot(caps, boot),
    screen(frame) {
      const { refusedBy } = frame as { readonly refusedBy?: string };
      if (refusedBy !== undefined && mayReport()) refused(refusedBy);
      return screen(caps, frame);
    },
    judge(frame) {
      const { up, denied, post, ...rest } = judge(caps, frame);
      const isReport = denied || up?.kind === "dead-letter" || post?.frame.kind === "event";
      if (!isReport || mayReport()) return { ...rest, up, denied, post } as Judgement;
      const { kind } = post?.frame ?? {};
      return { ...rest, ...kind !== "event" && post && { post } };
    },
  };
}

/** Says yes so many times in each window. */
function openThrottle(): () => boolean {
  let since = -Infinity, count = 0;
  return () => {
    const now = performance.now();
    if (now - since >= WINDOW_MS) {
      since = now;
      count = 0;
    }
    return ++count <= REPORTS_MAX;
  };
}
