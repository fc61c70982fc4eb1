/**
 * One simulated run: real actors under a virtual clock, every choice made in one place.
 *
 * [Note: standing still] The scenario's code must never run beside the loop, or the ticks of its
 * promises would decide what is sent when. So the loop begins a turn of the event loop after it is
 * woken, and lets one pass after every step that ended something the scenario may wait for.
 *
 * @module
 */

import { NONE_YET, type PendingMessage } from "../runtime/choose.ts";
import type { Isolate } from "../runtime/isolate.ts";
import { ActorFailedError } from "../runtime/mod.ts";
import { openSystem } from "../runtime/root.ts";
import { handleNext, turn } from "../runtime/steps.ts";
import { setFaultSites } from "../runtime/types.ts";
import type { Frame } from "../runtime/wire.ts";
import { substream } from "../runtime/world.ts";
import { Chooser, PRUNED, VirtualClock } from "./chooser.ts";
import { SimulatedDisk } from "./disk.ts";
import { deliverWith, endsOf, type Fault, isFromDead, kill, named } from "./faults.ts";
import {
  describeIdle,
  describeWaits,
  External,
  idle,
  openWorld,
  type RunState,
  ScenarioWaits,
  stateOf,
} from "./machine.ts";
import { Recorder } from "./recorder.ts";
import {
  HANG_MS,
  MAX_STEPS,
  type Run,
  type Scenario,
  type SimulateOptions,
  viewOf,
} from "./run.ts";
import { FIRST_EXPECTED_STEPS, ReplayError } from "./strategies.ts";
import { exempt, isActorAtWork, setActorAtWork, setTraps } from "./traps.ts";
import { Verdict } from "./verdict.ts";
import type { Candidate } from "../runtime/context.ts";

/** Modules that were loaded; an import that waits for nothing is still a turn. */
const modules = new Map<string, Record<string, unknown>>();

/** The exports of a module. What it does when it is first loaded is not part of any run. */
async function loadModule(module: string): Promise<Record<string, unknown>> {
  if (!modules.has(module)) modules.set(module, await exempt(() => import(module)));
  return modules.get(module)!;
}

/** Handles a message; returns a promise of its end if that is not now. */
function handle(run: RunState, work: PendingMessage): Promise<void> | undefined {
  const { isolate, chooser, recorder, clock, mode } = run, { actor, envelope } = work;
  const crash = mode === "explore" && actor.state !== "stopping"
    ? chooser.crashOf(actor.ref.id, recorder.steps)
    : undefined;
  recorder.begins(actor, envelope, clock.now());
  if (crash?.kind === "crash-before") {
    // It has not begun, so what it did last is not what it does.
    actor.activity = "";
    kill(isolate, work);
  } else {
    setActorAtWork(actor.ref.id);
    if (crash?.kind === "crash-amid") {
      run.dying = { actor, left: crash.sends ?? 0, unanswered: [] };
    }
    const ended = handleNext(isolate, work);
    if (ended) return ended.then(() => end(run, work, crash));
  }
  end(run, work, crash);
  return undefined;
}

function end(run: RunState, work: PendingMessage, crash: Fault | undefined): void {
  const { isolate, chooser, recorder, verdict, view } = run, { actor, envelope } = work;
  setActorAtWork(undefined);
  recorder.ends(actor);
  view.steps = recorder.steps;
  // Who waits for an answer that came too late learns that the actor is gone.
  for (const ask of run.dying?.unanswered ?? []) {
    actor.pendingReplies.set({ isolate: 0, ask }, true);
  }
  run.dying = undefined;
  if (crash && crash.kind !== "crash-before") kill(isolate, work);
  chooser.clear();
  view.actor = actor.ref.id;
  view.type = envelope.message.type;
  view.name = actor.activity;
  if (!verdict.isOver) verdict.afterStep();
}

/** Brings a message or an answer to where it goes, unless something happens to it. */
function deliverDelayed(run: RunState, frame: Frame, deliver: (frame: Frame) => void): void {
  const { dying, mode, isolate, chooser, recorder, clock } = run;
  if (dying && isFromDead(dying, frame)) return;
  const isOpen = mode === "explore" && isActorAtWork();
  const ends = isOpen ? endsOf(isolate, frame) : undefined;
  const fault = ends && chooser.carry(ends.from.id, ends.to.id, recorder.steps);
  deliverWith(fault, frame, deliver, clock.after);
}

/** Runs from when the loop is woken until nobody can do anything, or the run is over. */
async function runLoop(run: RunState): Promise<void> {
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
    const external = run.mode === "close" ? undefined : run.external.ended();
    if (external) await external;
    const work = picker.next();
    if (verdict.isOver && run.mode !== "close") return;
    if (work) {
      const ended = run.mode === "close" ? handleNext(isolate, work) : handle(run, work);
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

/** How long an actor in the simulation may take to stop, in virtual milliseconds. */
const STOP_GRACE_MS = 5000;

/**
 * Opens the machine of a run; simulations run one at a time.
 *
 * @throws {TypeError} when another simulation runs, or the options do not go together.
 * @throws {RangeError} when an option is out of its range.
 */
function openMachine(options: SimulateOptions<unknown>): RunState {
  const { seed = 0, faults, trusted = [], digests, onStep, onMessage } = options;
  const clock = new VirtualClock(),
    chooser = new Chooser(options, clock),
    external = new External();
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
    external: external.run,
    delivery: faults && ((frame, deliver) => deliverDelayed(run, frame, deliver)),
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
    ...{ options, system, isolate, disk, clock, chooser, recorder, view, external, removeTraps },
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
async function play<T, C>(
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
async function closeMachine(run: RunState): Promise<void> {
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

/**
 * Runs a scenario under a virtual clock in this isolate. A step is one message handled to its end
 * or to its next `ctx.ask`; which one is next, or whether a timer fires before it, is the
 * strategy's to choose, and nothing else is left to chance, so the same seed gives the same running hash. Simulations run one at a time.
 *
 * @param options seed, strategy, faults and limits.
 * @param scenario what happens.
 * @returns what the run was; a failure is part of that and not thrown.
 * @throws {TypeError} (as a rejection) when another simulation runs.
 *
 * @example
 * ```ts
 * import { random, simulate } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const log = (ctx) => {
 *   const log = [];
 *   return { Note({ n }) { log.push(n); }, Read() { ctx.reply(log); } };
 * };
 * export const sender = (ctx, { to, n }) => { ctx.send(to, { type: "Note", n }); return {}; };`;
 * type Log = { type: "Note"; n: number } | { type: "Read" };
 * const play = (seed: number) =>
 *   simulate({ seed, strategy: random() }, async ({ system, idle }) => {
 *     const to = system.spawn<undefined, Log>({ module, export: "log" }, undefined, { id: "log" });
 *     for (const n of [1, 2, 3]) {
 *       system.spawn<object, Log>({ module, export: "sender" }, { to, n }, { id: "sender-" + n });
 *     }
 *     await idle();
 *     return await system.ask(to, { type: "Read" });
 *   });
 * const first = await play(5), second = await play(5);
 * assert.equal(first.failure, undefined);
 * assert.equal(first.hash, second.hash);
 * assert.deepEqual(first.value, second.value);
 * ```
 */
export async function simulate<T, C = undefined>(
  options: SimulateOptions<C>,
  scenario: Scenario<T, C>,
): Promise<Run<T>> {
  const run = openMachine(options as SimulateOptions<unknown>);
  let value: { readonly is: T } | undefined;
  try {
    value = await play(run, scenario);
  } finally {
    await closeMachine(run);
  }
  const { chooser, recorder, verdict: { failure }, idle } = run;
  return {
    seed: options.seed ?? 0,
    strategy: chooser.strategy.name,
    steps: recorder.steps,
    choices: chooser.choices,
    hash: recorder.hash,
    deviations: chooser.deviations,
    faults: chooser.faults.done,
    waiting: idle,
    ...(failure ? { failure } : {}),
    ...(value ? { value: value.is } : {}),
  };
}
