/**
 * The world of a scenario: what it does there decides how far the run goes on.
 *
 * @module
 */

import type { AskCall, System } from "../../runtime/mod.ts";
import type { ActorRef, Message } from "../../runtime/types.ts";
import type { SimulatedDisk } from "../disk/simulated_disk.ts";
import type { World } from "../world.ts";
import { explore, type RunState, settle } from "./run_state.ts";

/**
 * Opens the world of a run.
 *
 * @param system whose actors the scenario plays with.
 * @param disk the disk of the run.
 */
export function openWorld<C>(run: RunState, system: System, disk: SimulatedDisk): World<C> {
  const { waits, clock, verdict } = run;
  return {
    system: watched(run, system),
    configuration: run.options.configuration as C,
    async settle(until = {}) {
      const { steps = Infinity, ms = Infinity } = typeof until === "number"
        ? { steps: until }
        : until;
      settle(run, steps);
      waits.isTimed ||= ms < Infinity;
      await idle(run, clock.now() + ms);
      explore(run);
    },
    idle: () => idle(run, Infinity),
    async advance(ms) {
      if (!(ms >= 0)) throw new RangeError(`Cannot advance: ms must be 0 or more, received ${ms}`);
      waits.isTimed = true;
      await idle(run, clock.now() + ms);
    },
    invariant: (name, check) => verdict.always(name, check),
    eventually: (name, check, options = {}) => verdict.eventually(name, check, options),
    disk,
    atEnd: (name, check) => verdict.atEnd(name, check),
  };
}

/** Waits until nobody can do anything, or for a moment of virtual time. */
export function idle({ waits, isolate }: RunState, until: number): Promise<void> {
  const reached = waits.until(until);
  isolate.wake();
  return reached;
}

/** The system as the scenario gets it: tells the loop what the scenario waits for. */
function watched({ waits, isolate }: RunState, system: System): System {
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
