/**
 * The machine of a simulated run: an actor system in which the clock, the order of messages, the
 * faults and the disk are the run's own.
 *
 * @module
 */

import { setFaultSites } from "../../runtime/fault_sites.ts";
import type { Isolate } from "../../runtime/isolate/isolate.ts";
import { type Candidate, NONE_YET } from "../../runtime/mailbox/choose.ts";
import { ActorFailedError } from "../../runtime/mod.ts";
import { openSystem } from "../../runtime/root.ts";
import { turn } from "../../runtime/world/pace.ts";
import { substream } from "../../runtime/world/random.ts";
import { SimulatedDisk } from "../disk/simulated_disk.ts";
import { Recorder } from "../journal/recorder.ts";
import { named } from "../failure.ts";
import { HANG_MS, type Scenario, type SimulateOptions } from "../simulated_run.ts";
import { FIRST_EXPECTED_STEPS } from "../strategies/strategy.ts";
import { isActorAtWork, setActorAtWork } from "../traps/guard.ts";
import { setTraps } from "../traps/traps.ts";
import { viewOf } from "../view.ts";
import { loadModule } from "./actor_modules.ts";
import { Chooser, PRUNED } from "./chooser.ts";
import { runLoop } from "./loop.ts";
import { Outside } from "./outside.ts";
import type { RunState } from "./run_state.ts";
import { ScenarioWaits } from "./scenario_waits.ts";
import { idle, openWorld } from "./scenario_world.ts";
import { describeWaits, stateOf } from "./state.ts";
import { carry } from "./steps.ts";
import { Verdict } from "./verdict.ts";
import { VirtualClock } from "./virtual_clock.ts";

/** How long an actor in the simulation may take to stop, in virtual milliseconds. */
const STOP_GRACE_MS = 5000;

/**
 * Opens the machine of a run; simulations run one at a time.
 *
 * @throws {TypeError} when another simulation runs, or the options do not go together.
 * @throws {RangeError} when an option is out of its range.
 */
export function openMachine(options: SimulateOptions<unknown>): RunState {
  const { seed = 0, faults, trusted = [], digests, onStep, onMessage } = options;
  const clock = new VirtualClock(), chooser = new Chooser(options, clock), outside = new Outside();
  const { decision } = chooser;
  const recorder = new Recorder(0, { sink: onStep, keep: onMessage, decision, digests });
  const removeTraps = setTraps(trusted, (error) => run.verdict.fail("determinism", error));
  if (faults) {
    setFaultSites((site) =>
      run.mode === "explore" && isActorAtWork() && chooser.failsAt(site, recorder.steps)
    );
  }
  let isolate!: Isolate;
  const system = openSystem({
    seed,
    clock: {
      after: clock.after,
      advance: () => clock.advance(),
      now: () => options.strategy?.reads?.() ?? clock.now(),
    },
    choose: (candidates) => choose(run, candidates),
    offers: options.offers,
    // Only a record needs to know what actors do.
    observer: onStep ? recorder : undefined,
    load: loadModule,
    outside: outside.run,
    carry: faults && ((frame, deliver) => carry(run, frame, deliver)),
    breathe: () => undefined,
    stopGraceMs: STOP_GRACE_MS,
    run: () => runLoop(run),
    attach: (made) => void (isolate = made),
    onFailure: (failure) => run.verdict.fail("actor", new ActorFailedError(failure)),
  });
  // The run fails by it already.
  system.failed.catch(() => {});
  const disk = new SimulatedDisk({
    fails: (operation, needsRoom) =>
      run.mode === "explore" ? chooser.failDisk(operation, needsRoom, recorder.steps) : undefined,
    random: (operation) => substream(seed, `disk#${operation}`),
  });
  const view = viewOf(isolate, system.deadLetters);
  const run: RunState = {
    ...{ options, system, isolate, disk, clock, chooser, recorder, view, outside, removeTraps },
    verdict: new Verdict(view),
    waits: new ScenarioWaits(clock),
    mode: "explore",
    settleUntil: Infinity,
    dying: undefined,
    isHanging: false,
    idle: [],
  };
  return run;
}

function choose(run: RunState, candidates: readonly Candidate[]): number {
  if (run.mode !== "explore") return 0;
  const state = () => stateOfRun(run), actors = () => run.view.actors;
  const choice = run.chooser.choose(candidates, run.recorder.steps, state, actors);
  if (choice !== PRUNED) return choice;
  run.verdict.prune();
  return NONE_YET;
}

function stateOfRun({ isolate, clock, options }: RunState): number {
  return stateOf(isolate, clock, options.offers ?? "by-sender");
}

/**
 * Plays a scenario to its end, or to the first failure.
 *
 * @returns what the scenario returned, if it came to its end.
 * @throws what a strategy, a check or the machine itself throws.
 */
export async function play<T, C>(
  run: RunState,
  scenario: Scenario<T, C>,
): Promise<{ readonly is: T } | undefined> {
  const { verdict, waits, clock, chooser: { strategy } } = run;
  const { seed = 0, start = { run: 0, expectedSteps: FIRST_EXPECTED_STEPS } } = run.options;
  const alarm = setInterval(watchdog(run), run.options.hangMs ?? HANG_MS);
  let value: { readonly is: T } | undefined;
  try {
    if (start !== "begun") strategy.begin({ seed, ...start });
    const ending = (async () => {
      value = { is: await scenario(openWorld<C>(run)) };
      await idle(run, waits.isTimed ? clock.now() : Infinity);
      verdict.afterAll();
    })().catch((error) => verdict.fail("scenario", error));
    await Promise.race([ending, verdict.over]);
    if (!verdict.isPruned && !verdict.broken) strategy.end?.(() => stateOfRun(run));
  } finally {
    clearInterval(alarm);
  }
  if (verdict.broken) throw verdict.broken.error;
  return verdict.failure || verdict.isPruned ? undefined : value;
}

/** Looks now and then, by the real clock, whether the run still goes on. */
function watchdog(run: RunState): () => void {
  const { isolate, recorder, verdict } = run;
  let steps = -1;
  return () => {
    if (verdict.isOver) return;
    if (recorder.steps === steps) {
      run.isHanging = true;
      const waits = describeWaits(isolate);
      verdict.fail("deadlock", named("Hang", "a handler or the scenario does not end"), waits);
    }
    steps = recorder.steps;
  };
}

/** Stops the actors, so that nothing of them is left. */
export async function closeMachine(run: RunState): Promise<void> {
  const { isolate, clock, options: { hangMs = HANG_MS } } = run;
  run.mode = "close";
  run.waits.close();
  // Timers that start again and again must not keep the loop from its end.
  clock.limit = clock.now();
  setActorAtWork(undefined);
  // The loop may be about to see that the run is over; or a handler may still be at work.
  const limit = performance.now() + hangMs;
  while (isolate.isRunning && !run.isHanging) {
    await turn();
    run.isHanging = performance.now() > limit;
  }
  // What was left to do when the run was over has nobody else to wake the loop for it.
  clock.limit = Infinity;
  isolate.wake();
  // A handler that never ends is not waited for.
  if (!run.isHanging) {
    let timer;
    const timeout = new Promise((resolve) => timer = setTimeout(resolve, hangMs));
    await Promise.race([run.system.stop(), timeout]);
    clearTimeout(timer);
  }
  setFaultSites(undefined);
  run.removeTraps();
}
