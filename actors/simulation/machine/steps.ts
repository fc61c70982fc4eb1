/**
 * The steps of a run: one message each, with the crash or the loss that it may suffer.
 *
 * @module
 */

import { dispatch } from "../../runtime/isolate/steps.ts";
import type { Work } from "../../runtime/mailbox/choose.ts";
import type { Frame } from "../../runtime/transports/wire.ts";
import { deliverWith, endsOf } from "../faults/carry.ts";
import { isFromDead, kill } from "../faults/crash.ts";
import type { Fault } from "../faults/faults.ts";
import { isActorAtWork, setActorAtWork } from "../traps/guard.ts";
import type { RunState } from "./run_state.ts";

/** Handles a message; returns a promise of its end if that is not now. */
export function handle(run: RunState, work: Work): Promise<void> | undefined {
  const { isolate, chooser, recorder, clock, mode } = run, { actor, envelope } = work;
  const crash = mode === "explore" && actor.state !== "stopping"
    ? chooser.crashOf(actor.ref.id, recorder.steps)
    : undefined;
  recorder.begins(actor, envelope, clock.now());
  if (crash?.kind === "crash-before") {
    // It has not begun, so what it did last is not what it does.
    actor.doing = "";
    kill(isolate, work);
  } else {
    setActorAtWork(actor.ref.id);
    if (crash?.kind === "crash-amid") {
      run.dying = { actor, left: crash.sends ?? 0, unanswered: [] };
    }
    const ended = dispatch(isolate, work);
    if (ended) return ended.then(() => end(run, work, crash));
  }
  end(run, work, crash);
  return undefined;
}

function end(run: RunState, work: Work, crash: Fault | undefined): void {
  const { isolate, chooser, recorder, verdict, view } = run, { actor, envelope } = work;
  setActorAtWork(undefined);
  recorder.ends(actor);
  view.steps = recorder.steps;
  // Who waits for an answer that came too late learns that the actor is gone.
  for (const ask of run.dying?.unanswered ?? []) actor.owed.set({ isolate: 0, ask }, true);
  run.dying = undefined;
  if (crash && crash.kind !== "crash-before") kill(isolate, work);
  chooser.clear();
  view.actor = actor.ref.id;
  view.type = envelope.message.type;
  view.name = actor.doing;
  if (!verdict.isOver) verdict.afterStep();
}

/** Brings a message or an answer to where it goes, unless something happens to it. */
export function carry(run: RunState, frame: Frame, deliver: (frame: Frame) => void): void {
  const { dying, mode, isolate, chooser, recorder, clock } = run;
  if (dying && isFromDead(dying, frame)) return;
  const isOpen = mode === "explore" && isActorAtWork();
  const ends = isOpen ? endsOf(isolate, frame) : undefined;
  const fault = ends && chooser.carry(ends.from.id, ends.to.id, recorder.steps);
  deliverWith(fault, frame, deliver, clock.after);
}
