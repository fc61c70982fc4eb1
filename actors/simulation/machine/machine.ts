/**
 * The machine of a simulated run: an actor system in which the clock, the order of messages, the
 * faults and the disk are the run's own.
 *
 * @module
 */

import { setFaultSites } from "../../runtime/fault_sites.ts";
import type { Isolate } from "../../runtime/isolate/isolate.ts";
import { type Candidate, NONE_YET } from "../../runtime/mailbox/choose.ts";
import { ActorFailedError, type System } from "../../runtime/mod.ts";
import { openSystem } from "../../runtime/root.ts";
import { turn } from "../../runtime/world/pace.ts";
import { substream } from "../../runtime/world/random.ts";
import { SimulatedDisk } from "../disk/simulated_disk.ts";
import { Recorder } from "../journal/recorder.ts";
import { HANG_MS, type Scenario, type SimulateOptions } from "../simulated_run.ts";
import { FIRST_EXPECTED_STEPS } from "../strategies/strategy.ts";
import { isActorAtWork, setActorAtWork } from "../traps/guard.ts";
import { setTraps } from "../traps/traps.ts";
import { viewOf } from "../view.ts";
import { loadModule } from "./actor_modules.ts";
import { Chooser, PRUNED } from "./chooser.ts";
import { runLoop } from "./loop.ts";
import { Outside } from "./outside.ts";
import { close, type RunState } from "./run_state.ts";
import { ScenarioWaits } from "./scenario_waits.ts";
import { idle, openWorld } from "./scenario_world.ts";
import { describeWaits, stateOf } from "./state.ts";
import { Steps } from "./steps.ts";
import { named, Verdict } from "./verdict.ts";
import { createVirtualClock } from "./virtual_clock.ts";

/** How long an actor in the simulation may take to stop, in virtual milliseconds. */
const STOP_GRACE_MS = 5000;

/** What one simulated run takes place in. */
export interface Machine {
  /** The run. */
  readonly run: RunState;
  /** Whose actors it is about. */
  readonly system: System;
  /** What they may write to. */
  readonly disk: SimulatedDisk;
  /** Gives the world back what was trapped. */
  readonly removeTraps: () => void;
  /** A handler or the scenario does not end: nobody waits for it any longer. */
  isHanging: boolean;
}

/**
 * Opens the machine of a run; simulations run one at a time.
 *
 * @throws {TypeError} when another simulation runs, or the options do not go together.
 * @throws {RangeError} when an option is out of its range.
 */
export function openMachine(options: SimulateOptions<unknown>): Machine {
  const clock = createVirtualClock(), chooser = new Chooser(options, clock);
  const { seed = 0, faults, trusted = [], digests, onStep, onMessage } = options;
  const { decision } = chooser, last = { actor: "", type: "", name: "" };
  const recorder = new Recorder(0, { sink: onStep, keep: onMessage, decision, digests });
  const removeTraps = setTraps(trusted, (error) => run.verdict.fail("determinism", error));
  if (faults) {
    setFaultSites((site) =>
      run.mode === "explore" && isActorAtWork() && chooser.failsAt(site, recorder.steps)
    );
  }
  let isolate!: Isolate;
  const outside = new Outside();
  const system = openSystem({
    seed,
    clock: { ...clock, now: () => options.strategy?.reads?.() ?? clock.now() },
    choose: (candidates) => choose(run, around, candidates),
    offers: options.offers,
    // Only a record needs to know what actors do.
    observer: onStep ? recorder : undefined,
    load: loadModule,
    outside: outside.run,
    carry: faults && ((frame, deliver) => steps.carry(frame, deliver)),
    breathe: () => undefined,
    stopGraceMs: STOP_GRACE_MS,
    run: () => runLoop(run, steps),
    attach: (made) => void (isolate = made),
    onFailure: (failure) => run.verdict.fail("actor", new ActorFailedError(failure)),
  });
  // The run fails by it already.
  system.failed.catch(() => {});
  const view = viewOf(isolate, last, () => recorder.steps, system.deadLetters);
  const run: RunState = {
    options,
    isolate,
    clock,
    chooser,
    recorder,
    verdict: new Verdict(view),
    waits: new ScenarioWaits(clock),
    outside,
    last,
    mode: "explore",
    settleUntil: Infinity,
    idle: [],
  };
  const steps = new Steps(run);
  const around: Around = { state: () => stateOfRun(run), actors: () => view.actors };
  return { run, system, disk: openDisk(run, seed), removeTraps, isHanging: false };
}

/** What a choice may depend on besides its candidates. */
type Around = Parameters<Chooser["choose"]>[2];

function choose(run: RunState, around: Around, candidates: readonly Candidate[]): number {
  if (run.mode !== "explore") return 0;
  const choice = run.chooser.choose(candidates, run.recorder.steps, around);
  if (choice !== PRUNED) return choice;
  run.verdict.prune();
  return NONE_YET;
}

function stateOfRun({ isolate, clock, options }: RunState): number {
  return stateOf(isolate, clock, options.offers ?? "by-sender");
}

function openDisk(run: RunState, seed: number): SimulatedDisk {
  const { chooser, recorder } = run;
  return new SimulatedDisk({
    fails: (operation, needsRoom) =>
      run.mode === "explore" ? chooser.failDisk(operation, needsRoom, recorder.steps) : undefined,
    random: (operation) => substream(seed, `disk#${operation}`),
  });
}

/**
 * Plays a scenario to its end, or to the first failure.
 *
 * @returns what the scenario returned, if it came to its end.
 * @throws what a strategy, a check or the machine itself throws.
 */
export async function play<T, C>(
  machine: Machine,
  scenario: Scenario<T, C>,
): Promise<{ readonly is: T } | undefined> {
  const { run, system, disk } = machine, { verdict, waits, clock, chooser: { strategy } } = run;
  const { seed = 0, start = { run: 0, expectedSteps: FIRST_EXPECTED_STEPS } } = run.options;
  const alarm = setInterval(watchdog(machine), run.options.hangMs ?? HANG_MS);
  let value: { readonly is: T } | undefined;
  try {
    strategy.begin({ seed, ...start });
    const ending = (async () => {
      value = { is: await scenario(openWorld<C>(run, system, disk)) };
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
function watchdog(machine: Machine): () => void {
  const { isolate, recorder, verdict } = machine.run;
  let steps = -1;
  return () => {
    if (verdict.isOver) return;
    if (recorder.steps === steps) {
      machine.isHanging = true;
      const waits = describeWaits(isolate);
      verdict.fail("deadlock", named("Hang", "a handler or the scenario does not end"), waits);
    }
    steps = recorder.steps;
  };
}

/** Stops the actors, so that nothing of them is left. */
export async function closeMachine(machine: Machine): Promise<void> {
  const { run, system, removeTraps } = machine, { isolate, clock } = run;
  const { hangMs = HANG_MS } = run.options;
  close(run);
  setActorAtWork(undefined);
  // The loop may be about to see that the run is over; or a handler may still be at work.
  const limit = performance.now() + hangMs;
  while (isolate.isRunning && !machine.isHanging) {
    await turn();
    machine.isHanging = performance.now() > limit;
  }
  // What was left to do when the run was over has nobody else to wake the loop for it.
  clock.limit = Infinity;
  isolate.wake();
  if (!machine.isHanging) await stop(system, hangMs);
  setFaultSites(undefined);
  removeTraps();
}

/** Stops the system, but waits for no handler that never ends. */
async function stop(system: System, hangMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, hangMs);
  await Promise.race([system.stop(), promise]);
  clearTimeout(timer);
}
