/**
 * What comes of each frame that a confined isolate sends to the root.
 *
 * [Note: mistakes and forgeries] What an actor can do by the words of its context may be a mistake, so
 * it costs no more than the message: a dead letter, and an event. A frame that no runtime sends costs
 * the isolate. Of either nothing goes on but what was read, field by field.
 *
 * @module
 */

import { describeFailure, messageOf } from "../../failure.ts";
import { starterOf } from "../../isolate/spawning.ts";
import type { UpFrame } from "../wire.ts";
import { judgeAcross } from "./across.ts";
import type { Capabilities } from "./capabilities.ts";
import {
  buffersOf,
  countOf,
  letterOf,
  nameOf,
  reasonOf,
  recordOf,
  type Untrusted,
} from "./reading.ts";
import { forged, malformed, type Verdict } from "./verdict.ts";

/** A verdict, with the buffers that move with what it posts. */
export interface Judgement extends Verdict {
  readonly transfer: readonly ArrayBuffer[];
}

/** Judges a frame, whatever it is; never throws. */
export function judge(caps: Capabilities, frame: unknown): Judgement {
  try {
    const whole = recordOf(frame), isForward = whole?.kind === "forward";
    const transfer = isForward ? buffersOf(whole.transfer) : [];
    if (!whole || !transfer) return { ...malformed("frame"), transfer: [] };
    return { ...judgeWhole(caps, whole), transfer };
  } catch (error) {
    return { forged: `its frames must be whole: ${messageOf(error)}`, transfer: [] };
  }
}

function judgeWhole(caps: Capabilities, frame: Readonly<Record<string, unknown>>): Verdict {
  const { kind } = frame;
  if (typeof kind === "string" && Object.hasOwn(RULES, kind)) {
    return RULES[kind as UpFrame["kind"]](caps, frame);
  }
  return judgeAcross(caps, frame, 0) ?? forged("send frames of a kind that there is not");
}

/** For each kind of frame to the root, what comes of it. */
type Rules = {
  readonly [K in UpFrame["kind"]]: (
    caps: Capabilities,
    frame: Untrusted<Extract<UpFrame, { kind: K }>>,
  ) => Verdict;
};

const RULES: Rules = {
  forward(caps, frame) {
    const to = countOf(frame.to), inner = recordOf(frame.frame);
    const isElsewhere = to !== undefined && to !== 0 && to !== caps.self.isolate;
    if (!isElsewhere || !inner) return malformed("forward");
    return judgeAcross(caps, inner, to) ?? malformed("forward");
  },
  start(caps, frame) {
    const isolate = countOf(frame.isolate);
    const id = nameOf(recordOf(recordOf(recordOf(frame.launch))?.ref)?.id);
    if (isolate === undefined || id === undefined || starterOf(isolate) !== caps.self.isolate) {
      return malformed("start");
    }
    const error = new Error(`the actor of a package must have its children in its own isolate`);
    const reason = describeFailure(id, "exit", error);
    return {
      back: { kind: "isolate-gone", isolate, reason },
      denied: { what: "spawn", on: id },
    };
  },
  done(_, frame) {
    const reason = reasonOf(frame.reason);
    return reason ? { up: { kind: "done", reason } } : malformed("done");
  },
  "dead-letter"(_, frame) {
    const letter = letterOf(frame.letter), { message } = frame;
    if (!letter) return malformed("dead-letter");
    return { up: { kind: "dead-letter", letter, ...message !== undefined && { message } } };
  },
  invite: () => forged("have others connect to it"),
  kill: () => forged("end an isolate"),
  started: () => forged("tell what it has started: it starts nobody"),
};
