/**
 * What a confined isolate gets to see of the frames that are for it.
 *
 * @module
 */

import { goneFailure, type Reason } from "../../failure.ts";
import { cloning } from "../../snapshot.ts";
import type { BootFrame, DownFrame, Frame, SwitchFrame } from "../wire.ts";
import {
  type Capabilities,
  forgive,
  isOwn,
  learn,
  nobody,
  questionKey,
  repay,
  shown,
} from "./capabilities.ts";
import { holdingsOf } from "./holdings.ts";

/** What may be for an isolate. */
export type Inward = DownFrame | Frame | SwitchFrame;

/** For each kind of frame, what comes of it. */
type Screens = {
  readonly [K in Inward["kind"]]: (
    caps: Capabilities,
    frame: Extract<Inward, { kind: K }>,
  ) => readonly Inward[];
};

/**
 * The frames that the isolate gets instead of this one, and notes what they give it.
 *
 * @throws {DOMException} `DataCloneError` when the frame cannot be looked through.
 */
export function screen(caps: Capabilities, frame: Inward): readonly Inward[] {
  const screenOf = SCREENS[frame.kind] as (caps: Capabilities, frame: Inward) => readonly Inward[];
  return screenOf(caps, frame);
}

/** What the isolate is told of itself: nothing of others, and nowhere to put actors but in itself. */
export function screenBoot(caps: Capabilities, boot: BootFrame): BootFrame {
  give(caps, boot.launch.init);
  const launch = { ...boot.launch, parent: nobody(caps) };
  return { ...boot, observer: undefined, places: [], launch };
}

const NOTHING: readonly Inward[] = [];

const SCREENS: Screens = {
  boot: (caps, frame) => [screenBoot(caps, frame)],
  message(caps, frame) {
    const { from, to, message, replyTo, receipt, credit } = frame;
    give(caps, message);
    if (replyTo) caps.owed.set(questionKey(replyTo), { asker: from, type: message.type });
    if (credit) caps.held.set(`${credit.isolate}/${credit.number}`, credit);
    const sender = isOwn(caps, from) ? from : nobody(caps, from.id);
    if (!receipt || isOwn(caps, receipt.to)) return [{ ...frame, to, from: sender }];
    const ticket = caps.tickets++;
    caps.receipts.set(ticket, receipt);
    const blank = { to: nobody(caps), message: { type: "receipt", ticket } };
    return [{ ...frame, to, from: sender, receipt: blank }];
  },
  answer(caps, frame) {
    const { outcome } = frame;
    caps.asked.take(frame.ask);
    if (outcome.status === "answered") give(caps, outcome.value);
    if (outcome.status !== "circle") return [frame];
    const path = outcome.path.map((ref) => shown(caps, ref));
    return [{ ...frame, outcome: { ...outcome, path } }];
  },
  chase(caps, frame) {
    const isBack = isOwn(caps, frame.by);
    const path = frame.path.map((ref) => shown(caps, ref));
    if (isBack) return [{ ...frame, path }];
    const ticket = caps.tickets++;
    caps.chases.set(ticket, frame);
    return [{ ...frame, path, by: nobody(caps), first: { isolate: -1, ask: ticket } }];
  },
  forwarded(caps, frame) {
    if (caps.asked.has(frame.ask)) caps.asked.set(frame.ask, frame.to);
    return [{ ...frame, to: shown(caps, frame.to) }];
  },
  withdraw(caps, frame) {
    const key = questionKey(frame.question), question = caps.owed.take(key);
    if (question) caps.late.set(key, question);
    return [frame];
  },
  watch(caps, frame) {
    caps.watchers.add(frame.by);
    return [frame];
  },
  "isolate-gone": (caps, { isolate, reason }) => lose(caps, isolate, reason),
  credit(caps, { credit }) {
    repay(caps, credit.number);
    return NOTHING;
  },
  unwatch: (_, frame) => [frame],
  down: (_, frame) => [frame],
  stop: (_, frame) => [frame],
  subscribe: (_, frame) => [frame],
  // It starts nobody elsewhere, and reaches all by the root.
  "has-started": () => NOTHING,
  accept: () => NOTHING,
  switch: () => NOTHING,
  launch: () => NOTHING,
  ended: () => NOTHING,
  event: () => NOTHING,
};

/** Another isolate is gone: what that means for this one, which may not know of it. */
function lose(caps: Capabilities, isolate: number, reason: Reason): readonly Inward[] {
  forgive(caps, isolate);
  const frames: Inward[] = [];
  // Whoever owes an answer may be another than who was asked.
  for (const [ask, { id, isolate: owing }] of [...caps.asked]) {
    if (owing !== isolate) continue;
    caps.asked.take(ask);
    const failure = goneFailure(id, reason);
    frames.push({ kind: "answer", ask, outcome: { status: "gone", failure } });
  }
  if (caps.parent.isolate === isolate) frames.push({ kind: "stop", ref: caps.self });
  if (caps.isolates.has(isolate)) frames.push({ kind: "isolate-gone", isolate, reason });
  return frames;
}

/** What a value holds is given with it. */
function give(caps: Capabilities, value: unknown): void {
  learn(caps, cloning(() => holdingsOf(value)).refs);
}
