/**
 * The steps of a run: one message each, with the crash or the loss that it may suffer.
 *
 * @module
 */

import { chaseSuspects } from "../../runtime/actor/circles.ts";
import { dispatch } from "../../runtime/isolate/steps.ts";
import type { Work } from "../../runtime/mailbox/choose.ts";
import type { Frame } from "../../runtime/transports/wire.ts";
import { deliverWith, endsOf } from "../faults/carry.ts";
import { type Dying, isFromDead, kill } from "../faults/crash.ts";
import type { Fault } from "../faults/faults.ts";
import { isActorAtWork, setActorAtWork } from "../traps/guard.ts";
import type { RunState } from "./run_state.ts";

/** Handles messages one by one. */
export class Steps {
  readonly #run: RunState;
  /** The actor at work, if it crashes before the end of its handler. */
  #dying: Dying | undefined;

  /** @param run the run. */
  constructor(run: RunState) {
    this.#run = run;
  }

  /** Handles a message, and promises the end of that if it is not now. */
  handle(work: Work): Promise<void> | undefined {
    const { isolate, chooser, recorder, clock, mode } = this.#run, { actor, envelope } = work;
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
        this.#dying = { actor, left: crash.sends ?? 0, unanswered: [] };
      }
      const ended = dispatch(isolate, work);
      if (ended) return ended.then(() => this.#ended(work, crash));
    }
    this.#ended(work, crash);
    return undefined;
  }

  #ended(work: Work, crash: Fault | undefined): void {
    const { isolate, chooser, recorder, verdict, last } = this.#run, { actor, envelope } = work;
    setActorAtWork(undefined);
    recorder.ends(actor);
    // Who waits for an answer that came too late learns that the actor is gone.
    for (const ask of this.#dying?.unanswered ?? []) actor.owed.set({ isolate: 0, ask }, true);
    this.#dying = undefined;
    if (crash && crash.kind !== "crash-before") kill(isolate, work);
    chaseSuspects(isolate);
    chooser.clear();
    last.actor = actor.ref.id;
    last.type = envelope.message.type;
    last.name = actor.doing;
    if (!verdict.isOver) verdict.afterStep();
  }

  /** Brings a message or an answer to where it goes, unless something happens to it. */
  carry(frame: Frame, deliver: (frame: Frame) => void): void {
    if (this.#dying && isFromDead(this.#dying, frame)) return;
    const { mode, isolate, chooser, recorder, clock } = this.#run;
    const isOpen = mode === "explore" && isActorAtWork();
    const ends = isOpen ? endsOf(isolate, frame) : undefined;
    const fault = ends && chooser.carry(ends.from.id, ends.to.id, recorder.steps);
    deliverWith(fault, frame, deliver, clock.after);
  }
}
