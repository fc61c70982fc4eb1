/**
 * What comes of each frame that a confined isolate sends to another, the root included.
 *
 * @module
 */

import { keyOf, SYSTEM_SERIAL } from "../../actor/actor.ts";
import { describeFailure } from "../../failure.ts";
import type { Frame, Outcome, SwitchFrame } from "../wire.ts";
import { type Capabilities, given, isOwn, questionKey, stranger } from "./capabilities.ts";
import { holdingsOf } from "./holdings.ts";
import { judgeMessage } from "./message.ts";
import {
  countOf,
  failureOf,
  nameOf,
  reasonOf,
  recordOf,
  refOf,
  replyToOf,
  textOf,
  type Untrusted,
} from "./reading.ts";
import { forged, malformed, notGiven, NOTHING, type Verdict } from "./verdict.ts";

/** What isolates send each other. */
type Sideways = Frame | SwitchFrame;

/** For each kind of frame to isolate `to`, what comes of it. */
type Rules = {
  readonly [K in Sideways["kind"]]: (
    caps: Capabilities,
    frame: Untrusted<Extract<Sideways, { kind: K }>>,
    to: number,
  ) => Verdict;
};

/** Judges a frame for isolate `to`; undefined when there is none of its kind. */
export function judgeAcross(
  caps: Capabilities,
  frame: Readonly<Record<string, unknown>>,
  to: number,
): Verdict | undefined {
  const { kind } = frame;
  if (typeof kind !== "string" || !Object.hasOwn(RULES, kind)) return undefined;
  return RULES[kind as Sideways["kind"]](caps, frame, to);
}

const RULES: Rules = {
  message: judgeMessage,
  answer: judgeAnswer,
  chase: judgeChase,
  forwarded(caps, frame, to) {
    const ask = countOf(frame.ask), target = refOf(frame.to, caps.self.system);
    if (ask === undefined || !target) return malformed("forwarded");
    const key = questionKey({ isolate: to, ask }), question = caps.owed.get(key);
    if (!question) return caps.owed.isLossy ? NOTHING : forged("hand on what it was not asked");
    if (isOwn(caps, target)) return post(to, { kind: "forwarded", ask, to: target });
    // The message that follows is denied if the address is.
    caps.owed.set(key, { ...question, handedTo: keyOf(target) });
    const known = given(caps, target);
    return known ? post(to, { kind: "forwarded", ask, to: known }) : NOTHING;
  },
  withdraw(caps, frame) {
    const question = replyToOf(frame.question);
    if (question?.isolate !== caps.self.isolate) return malformed("withdraw");
    const owing = caps.asked.take(question.ask);
    return owing ? post(owing.isolate, { kind: "withdraw", to: owing, question }) : NOTHING;
  },
  watch(caps, frame, to) {
    const ref = refOf(frame.ref, caps.self.system);
    if (!ref || ref.isolate !== to || frame.by !== caps.self.isolate) return malformed("watch");
    const known = given(caps, ref);
    if (known) return post(to, { kind: "watch", ref: known, by: caps.self.isolate });
    const reason = describeFailure(ref.id, "exit", new Error(notGiven(caps, ref)));
    return { back: { kind: "down", ref, reason }, denied: { what: "watch", on: ref.id } };
  },
  unwatch(caps, frame, to) {
    const ref = refOf(frame.ref, caps.self.system);
    if (!ref || ref.isolate !== to || frame.by !== caps.self.isolate) return malformed("unwatch");
    const known = given(caps, ref);
    return known ? post(to, { kind: "unwatch", ref: known, by: caps.self.isolate }) : NOTHING;
  },
  down(caps, frame, to) {
    const ref = refOf(frame.ref, caps.self.system), reason = reasonOf(frame.reason);
    if (!ref || !isOwn(caps, ref) || !reason) return malformed("down");
    if (!caps.watchers.has(to)) return forged("tell of an end where nobody watches");
    return post(to, { kind: "down", ref, reason });
  },
  stop(caps, frame, to) {
    const ref = refOf(frame.ref, caps.self.system);
    if (!ref || ref.isolate !== to) return malformed("stop");
    return { denied: { what: "stop", on: ref.id } };
  },
  ended(caps, frame) {
    const child = refOf(frame.child, caps.self.system), reason = reasonOf(frame.reason);
    const { self, parent } = caps;
    const isSelf = child !== undefined && isOwn(caps, child) && child.serial === self.serial;
    if (!isSelf || !reason || caps.hasEnded) return malformed("ended");
    caps.hasEnded = true;
    return post(parent.isolate, { kind: "ended", parent, child: self, reason });
  },
  credit(caps, frame, to) {
    const credit = recordOf(frame.credit), number = countOf(credit?.number);
    if (number === undefined || countOf(credit?.isolate) !== to) return malformed("credit");
    const held = caps.held.take(`${to}/${number}`);
    return held ? post(to, { kind: "credit", credit: held }) : malformed("credit");
  },
  event: (_, { event }, to) => to === 0 ? judgeEvent(event) : malformed("event"),
  launch: () => forged("launch an actor elsewhere"),
  subscribe: () => forged("say what others are to tell of"),
  switch: () => forged("connect to others"),
};

function post(to: number, frame: Frame): Verdict {
  return { post: { to, frame } };
}

function judgeAnswer(
  caps: Capabilities,
  frame: Untrusted<Extract<Frame, { kind: "answer" }>>,
  to: number,
): Verdict {
  const ask = countOf(frame.ask), outcome = outcomeOf(frame.outcome);
  if (ask === undefined || !outcome) return malformed("answer");
  const key = questionKey({ isolate: to, ask });
  const question = caps.owed.take(key) ?? caps.late.take(key);
  if (!question) {
    return caps.owed.isLossy ? NOTHING : forged("answer what it was not asked, or has answered");
  }
  const letter = {
    from: nameOf(recordOf(frame.letter)?.from) ?? caps.self.id,
    to: question.asker.id,
    type: `answer:${question.type}`,
  };
  const value = outcome.status === "answered" ? outcome.value : undefined;
  const { refs, isWhole } = holdingsOf(value), unknown = stranger(caps, refs);
  if (!unknown && isWhole) {
    return post(to, { kind: "answer", ask, outcome, ...frame.letter !== undefined && { letter } });
  }
  const why = unknown ? notGiven(caps, unknown) : "an answer must not hold that many values";
  return {
    ...post(to, { kind: "answer", ask, outcome: { status: "unsent", why } }),
    denied: {
      what: "reference",
      on: unknown?.id ?? question.asker.id,
      letter: { ...letter, reason: "denied" },
    },
  };
}

/** What an isolate may say of a question that another has asked. */
function outcomeOf(value: unknown): Outcome | undefined {
  const outcome = recordOf(value);
  switch (outcome?.status) {
    case "answered":
      return { status: "answered", value: outcome.value };
    case "unanswered":
      return { status: "unanswered" };
    case "gone": {
      const failure = failureOf(outcome.failure);
      return failure && { status: "gone", failure };
    }
    case "unsent": {
      const why = textOf(outcome.why);
      return why === undefined ? undefined : { status: "unsent", why };
    }
  }
}

/** A chase goes on along a question of the isolate's own: only where, is taken from it. */
function judgeChase(
  caps: Capabilities,
  frame: Untrusted<Extract<Frame, { kind: "chase" }>>,
): Verdict {
  const edge = replyToOf(frame.edge), { self } = caps;
  if (edge?.isolate !== self.isolate) return malformed("chase");
  const to = caps.asked.get(edge.ask);
  // It may have been answered meanwhile.
  if (!to) return NOTHING;
  const { isolate, ask } = recordOf(frame.first) ?? {}, by = refOf(frame.by, self.system);
  const path = Array.isArray(frame.path) && frame.path.length <= 1000
    ? frame.path.map((ref) => refOf(ref, self.system))
    : [undefined];
  if (!by || path.some((ref) => !ref)) return malformed("chase");
  const own = path.filter((ref) => isOwn(caps, ref!)).map((ref) => ref!);
  if (isolate === -1) {
    const begun = caps.chases.get(ask as number);
    if (!begun) return NOTHING;
    return post(to.isolate, { ...begun, to, edge, path: [...begun.path, begun.to] });
  }
  const first = replyToOf(frame.first);
  if (!first) return malformed("chase");
  if (first.isolate === self.isolate) {
    if (!isOwn(caps, by)) return malformed("chase");
    return post(to.isolate, { kind: "chase", to, edge, by, first, path: own });
  }
  const asker = caps.owed.get(questionKey(first))?.asker;
  if (!asker || asker.serial === SYSTEM_SERIAL) return NOTHING;
  return post(to.isolate, { kind: "chase", to, edge, by: asker, first, path: own });
}

/** Of itself it may tell that a step takes long. */
function judgeEvent(value: unknown): Verdict {
  const event = recordOf(value), actor = nameOf(event?.actor), handling = textOf(event?.handling);
  if (event?.type !== "slow-step" || actor === undefined || handling === undefined) {
    return malformed("event");
  }
  const { type, forMs, waitsFor, isOver } = event;
  if (typeof forMs !== "number" || !Array.isArray(waitsFor)) return malformed("event");
  const ids = waitsFor.slice(0, 1000).flatMap((id) => nameOf(id) ?? []);
  return post(0, {
    kind: "event",
    event: { type, actor, handling, forMs, isOver: isOver === true, waitsFor: ids },
  });
}
