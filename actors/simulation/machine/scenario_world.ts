/**
 * The world of a scenario: what it does there decides how far the run goes on.
 *
 * @module
 */

import type { AskCall, System } from "../../runtime/mod.ts";
import type { ActorRef, Message } from "../../runtime/types.ts";
import type { Settling, World } from "../world.ts";
import type { RunState } from "./run_state.ts";

/** Opens the world of a run. */
export function openWorld<C>(run: RunState): World<C> {
  const { waits, clock, verdict } = run;
  return {
    system: watched(run),
    configuration: run.options.configuration as C,
    async settle(until = {}) {
      const given = typeof until === "number" ? { steps: until } : until;
      const { steps = Infinity, ms = Infinity } = given as Settling;
      run.mode = "settle";
      run.settleUntil = run.recorder.steps + steps;
      waits.isTimed ||= ms < Infinity;
      await idle(run, clock.now() + ms);
      run.mode = "explore";
    },
    idle: () => idle(run, Infinity),
    async advance(ms) {
      if (!(ms >= 0)) throw new RangeError(`Cannot advance: ms must be 0 or more, received ${ms}`);
      waits.isTimed = true;
      await idle(run, clock.now() + ms);
    },
    invariant: (name, check) => void verdict.invariants.push({ name, check }),
    eventually: (name, check, options = {}) => verdict.duties.add(name, check, options, run.view),
    disk: run.disk,
    atEnd: (name, check) => void verdict.endings.push({ name, check }),
  };
}

/** Waits until nobody can do anything, or for a moment of virtual time. */
export function idle({ waits, isolate }: RunState, until: number): Promise<void> {
  const reached = waits.until(until);
  isolate.wake();
  return reached;
}

/** The system as the scenario gets it: tells the loop what the scenario waits for. */
function watched({ waits, isolate, system }: RunState): System {
  return {
    ...system,
    ask: ((to: ActorRef<Message>, message: Message, options?: object) => {
      waits.forAnswer(isolate.nextAsk);
      return system.ask(to, message, options);
    }) as AskCall,
    watch: (ref, onDown) =>
      system.watch(ref, (down) => {
        waits.isVisible = true;
        onDown(down);
      }),
  };
}
