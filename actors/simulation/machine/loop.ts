/**
 * The loop of a simulated run: message after message while somebody can do anything, then time.
 *
 * [Note: standing still] The scenario's code must never run beside the loop, or the ticks of its
 * promises would decide what is sent when. So the loop begins a turn of the event loop after it is
 * woken, and lets one pass after every step that ended something the scenario may wait for.
 *
 * @module
 */

import { named } from "../failure.ts";
import { dispatch } from "../../runtime/isolate/steps.ts";
import { turn } from "../../runtime/world/pace.ts";
import { MAX_STEPS } from "../simulated_run.ts";
import { ReplayError } from "../strategies/replay.ts";
import { setActorAtWork } from "../traps/guard.ts";
import type { RunState } from "./run_state.ts";
import { describeIdle, describeWaits } from "./state.ts";
import { handle } from "./steps.ts";

/** Runs from when the loop is woken until nobody can do anything, or the run is over. */
export async function runLoop(run: RunState): Promise<void> {
  const { isolate, verdict } = run;
  await turn();
  if (run.mode !== "close") run.idle = [];
  try {
    await loop(run);
  } catch (error) {
    if (error instanceof ReplayError) verdict.fail("replay", error);
    else verdict.break(error);
  }
  isolate.isRunning = false;
  if (verdict.isOver) return;
  if (run.mode !== "close") run.idle = describeIdle(isolate);
  const waits = describeWaits(isolate);
  if (waits.length > 0 && run.mode !== "close" && run.clock.remaining().length === 0) {
    verdict.fail("deadlock", named("Deadlock", "nobody can do anything"), waits);
  }
  run.waits.wake();
}

async function loop(run: RunState): Promise<void> {
  const { isolate, verdict, recorder, waits } = run, { picker, asks, unwinding } = isolate;
  const { maxSteps = MAX_STEPS } = run.options;
  while (!verdict.isOver || run.mode === "close") {
    if (unwinding.size > 0) await unwind(run);
    const outside = run.mode === "close" ? undefined : run.outside.ended();
    if (outside) await outside;
    const work = picker.next();
    if (verdict.isOver && run.mode !== "close") return;
    if (work) {
      const ended = run.mode === "close" ? dispatch(isolate, work) : handle(run, work);
      if (ended) await ended;
      if (recorder.steps >= maxSteps) {
        const hint = run.clock.next() === undefined ? "" : "; timers run: see world.advance";
        verdict.fail("livelock", named("Livelock", `no end after ${maxSteps} steps${hint}`));
      }
    } else if (!await rest(run)) return;
    waits.lookAtAnswers(asks);
    if (run.mode === "settle" && recorder.steps >= run.settleUntil) {
      run.mode = "explore";
      waits.isVisible = true;
      waits.wake();
    }
    if (waits.isVisible) {
      waits.isVisible = false;
      await turn();
    }
  }
}

/** Nobody can do anything: lets time pass, and says whether that changed anything. */
async function rest({ isolate, clock, verdict, waits }: RunState): Promise<boolean> {
  // A handler that waits for something other than an answer may be about to go on.
  await turn();
  if (isolate.picker.hasChanged) return true;
  if (isolate.asks.size > 0) verdict.waits = describeWaits(isolate);
  if (clock.advance()) {
    verdict.afterTime();
    return true;
  }
  if (clock.limit === Infinity || !waits.isWaiting || verdict.isOver) return false;
  clock.reachLimit();
  verdict.afterTime();
  waits.wake(clock.limit);
  waits.isVisible = true;
  return true;
}

/** Lets the handlers of actors that stop come to their ends before anything else happens: on their
 * way they may still send. */
async function unwind({ isolate }: RunState): Promise<void> {
  for (const { ref, step } of isolate.unwinding) {
    setActorAtWork(ref.id);
    await new Promise<void>((resolve) => step!.wake = resolve);
  }
  setActorAtWork(undefined);
}
