/**
 * One simulated run: real actors under a virtual clock, with every choice made in one place.
 *
 * [Note: the scenario and the loop] The scenario's code must never run concurrently with the loop, or
 * the ticks of its promises would determine when messages are sent. So the loop starts one turn of the
 * event loop after it is woken, and yields a turn after every step that ended something for which the
 * scenario may be waiting.
 *
 * @module
 */

import { NONE_YET, type PendingMessage } from "../runtime/actor.ts";
import type { Candidate } from "../runtime/context.ts";
import type { Isolate } from "../runtime/isolate.ts";
import {
  ActorFailedError,
  type ActorRef,
  type AskCall,
  type Message,
  type System,
} from "../runtime/mod.ts";
import { openSystem } from "../runtime/root.ts";
import { handleNext, turn } from "../runtime/steps.ts";
import { assertInput, setFaultSites } from "../runtime/types.ts";
import type { Frame } from "../runtime/wire.ts";
import { substream } from "../runtime/world.ts";
import {
  Chooser,
  describeIdle,
  describeWaits,
  External,
  PRUNED,
  ScenarioWaits,
  stateOf,
  VirtualClock,
} from "./chooser.ts";
import { exempt, forbidGlobals, isActorRunning, setRunningActor } from "./determinism_guard.ts";
import { SimulatedDisk } from "./disk.ts";
import { type Crash, deliverWith, endsOf, type Fault, isFromDead, kill, named } from "./faults.ts";
import { Recorder } from "./recorder.ts";
import {
  type Check,
  type EventuallyOptions,
  failureOf,
  HANG_MS,
  MAX_STEPS,
  type Run,
  type RunView,
  type Scenario,
  type SimulateOptions,
  type SimulationFailure,
  type View,
  viewOf,
  type World,
} from "./run.ts";
import { FIRST_EXPECTED_STEPS, ReplayError } from "./strategies.ts";

/** Loaded modules; an import takes a turn even if the module is loaded. */
const modules = new Map<string, Record<string, unknown>>();

/** Returns the exports of a module. Its first evaluation is not part of any run. */
async function loadModule(module: string): Promise<Record<string, unknown>> {
  if (!modules.has(module)) modules.set(module, await exempt(() => import(module)));
  return modules.get(module)!;
}

/**
 * Treatment of messages. `explore`: the strategy chooses, and faults occur. `settle`: messages are
 * handled in FIFO order. `close`: nothing counts any more.
 */
type Mode = "explore" | "settle" | "close";

/** Virtual milliseconds in which an actor must stop. */
const STOP_GRACE_MS = 5000;

/** A simulated run. Only one exists at a time. */
class SimulatedRun {
  readonly #clock = new VirtualClock();
  readonly #waits = new ScenarioWaits(this.#clock);
  readonly #external = new External();
  readonly #chooser: Chooser;
  readonly #recorder: Recorder;
  readonly #system: System;
  readonly #isolate!: Isolate;
  readonly #disk: SimulatedDisk;
  readonly #view: RunView;
  readonly #checks: RunChecks;
  /** Restores the forbidden globals. */
  readonly #restoreGlobals: () => void;
  #mode: Mode = "explore";
  /** Number of steps after which settling ends. */
  #settleUntil = Infinity;
  /** The crash of the running actor, if it crashes before the end of its handler. */
  #crash: Crash | undefined;
  /** True if a handler or the scenario does not end; then the run does not wait for it. */
  #isHanging = false;
  /** Descriptions of the actors that still wait for a message when no actor can continue. */
  #idle: readonly string[] = [];

  /**
   * Opens the system of a run.
   *
   * @throws {TypeError} when another simulation runs, or options exclude each other.
   * @throws {RangeError} when an option is out of range.
   */
  constructor(private readonly options: SimulateOptions<unknown>) {
    const { seed = 0, faults, trusted = [], digests, onStep, onMessage } = options;
    const clock = this.#clock, chooser = new Chooser(options, clock), { decision } = chooser;
    const recorder = new Recorder(0, { sink: onStep, keep: onMessage, decision, digests });
    this.#chooser = chooser;
    this.#recorder = recorder;
    this.#restoreGlobals = forbidGlobals(
      trusted,
      (error) => this.#checks.fail("determinism", error),
    );
    const isOpen = () => this.#mode === "explore";
    if (faults) {
      setFaultSites((site) =>
        isOpen() && isActorRunning() && chooser.failsAt(site, recorder.steps)
      );
    }
    let isolate!: Isolate;
    this.#system = openSystem({
      seed,
      clock: {
        after: (delayMs, fire) => {
          const { time, endMs = Infinity } = options.strategy ?? {};
          // Timers of the platform last whole milliseconds, at least one.
          const ms = time ? Math.max(1, Math.trunc(delayMs)) : delayMs;
          return clock.after(clock.now() + ms > endMs ? Infinity : ms, fire);
        },
        advance: () => clock.advance(),
        now: () => options.strategy?.reads?.() ?? clock.now(),
      },
      choose: (candidates) => this.#choose(candidates),
      offers: options.offers,
      // Only a record needs the effects of actors.
      observer: onStep ? recorder : undefined,
      load: loadModule,
      external: this.#external.run,
      delivery: faults && ((frame, deliver) => this.#deliver(frame, deliver)),
      breathe: () => undefined,
      stopGraceMs: STOP_GRACE_MS,
      run: () => this.#runLoop(),
      attach: (made) => void (isolate = made),
      onFailure: (failure) => this.#checks.fail("actor", new ActorFailedError(failure)),
    });
    // The run has this failure already.
    this.#system.failed.catch(() => {});
    this.#isolate = isolate;
    this.#disk = new SimulatedDisk({
      fails: (operation, needsRoom) =>
        isOpen() ? chooser.failDisk(operation, needsRoom, recorder.steps) : undefined,
      random: (operation) => substream(seed, `disk#${operation}`),
    });
    this.#view = viewOf(isolate, this.#system.deadLetters);
    this.#checks = new RunChecks(this.#view);
  }

  /**
   * Runs a scenario to its end, or to the first failure, and stops the actors.
   *
   * @throws an error of a strategy, a check or the simulation itself.
   */
  async play<T, C>(scenario: Scenario<T, C>): Promise<Run<T>> {
    let value: { readonly is: T } | undefined;
    try {
      value = await this.#play(scenario);
    } finally {
      await this.#close();
    }
    const { failure } = this.#checks, { strategy, choices, deviations, faults } = this.#chooser;
    return {
      seed: this.options.seed ?? 0,
      strategy: strategy.name,
      steps: this.#recorder.steps,
      choices,
      hash: this.#recorder.hash,
      deviations,
      faults: faults.done,
      waiting: this.#idle,
      ...(failure ? { failure } : {}),
      ...(value ? { value: value.is } : {}),
    };
  }

  async #play<T, C>(scenario: Scenario<T, C>): Promise<{ readonly is: T } | undefined> {
    const checks = this.#checks, { strategy } = this.#chooser;
    const { seed = 0, start = { run: 0, expectedSteps: FIRST_EXPECTED_STEPS } } = this.options;
    const alarm = setInterval(this.#watchdog(), this.options.hangMs ?? HANG_MS);
    let value: { readonly is: T } | undefined;
    try {
      if (start !== "begun") strategy.begin({ seed, ...start });
      const ending = (async () => {
        value = { is: await scenario(this.#openWorld<C>()) };
        await this.#wait(this.#waits.isTimed ? this.#clock.now() : Infinity);
        checks.afterAll();
      })().catch((error) => checks.fail("scenario", error));
      await Promise.race([ending, checks.over]);
      if (!checks.isPruned && !checks.broken) strategy.end?.(() => this.#state());
    } finally {
      clearInterval(alarm);
    }
    if (checks.broken) throw checks.broken.error;
    return checks.failure || checks.isPruned ? undefined : value;
  }

  #openWorld<C>(): World<C> {
    const clock = this.#clock, waits = this.#waits, checks = this.#checks;
    return {
      system: this.#watchedSystem(),
      configuration: this.options.configuration as C,
      settle: async (until = {}) => {
        const { steps = Infinity, ms = Infinity } = typeof until === "number"
          ? { steps: until }
          : until;
        this.#mode = "settle";
        this.#settleUntil = this.#recorder.steps + steps;
        waits.isTimed ||= ms < Infinity;
        await this.#wait(clock.now() + ms);
        this.#mode = "explore";
      },
      idle: () => this.#wait(Infinity),
      advance: async (ms) => {
        assertInput(ms >= 0, "Cannot advance: ms must be 0 or more", ms);
        waits.isTimed = true;
        await this.#wait(clock.now() + ms);
      },
      invariant: (name, check) => void checks.invariants.push({ name, check }),
      eventually: (name, check, options = {}) => checks.eventually(name, check, options),
      disk: this.#disk,
      atEnd: (name, check) => void checks.endings.push({ name, check }),
    };
  }

  /** Waits until no actor can continue, or for a moment of virtual time. */
  #wait(until: number): Promise<void> {
    const reached = this.#waits.until(until);
    this.#isolate.wake();
    return reached;
  }

  /** Returns the system for the scenario; the loop learns for what the scenario waits. */
  #watchedSystem(): System {
    const system = this.#system, waits = this.#waits;
    return {
      ...system,
      ask: ((to: ActorRef<Message>, message: Message, options?: object) => {
        waits.forAnswer(this.#isolate.nextAsk);
        return system.ask(to, message, options);
      }) as AskCall,
      watch: (ref, onDown) =>
        system.watch(ref, (down) => {
          waits.isVisible = true;
          onDown(down);
        }),
    };
  }

  /** Returns a function that fails the run if there was no step since its last call. */
  #watchdog(): () => void {
    let steps = -1;
    return () => {
      if (this.#checks.isOver) return;
      if (this.#recorder.steps === steps) {
        this.#isHanging = true;
        const error = named("Hang", "a handler or the scenario does not end");
        this.#checks.fail("deadlock", error, describeWaits(this.#isolate));
      }
      steps = this.#recorder.steps;
    };
  }

  #choose(candidates: readonly Candidate[]): number {
    if (this.#mode !== "explore") return 0;
    const state = () => this.#state(), actors = () => this.#view.actors;
    const choice = this.#chooser.choose(candidates, this.#recorder.steps, state, actors);
    if (choice !== PRUNED) return choice;
    this.#checks.prune();
    return NONE_YET;
  }

  #state(): number {
    return stateOf(this.#isolate, this.#clock, this.options.offers ?? "by-sender");
  }

  /** Runs until no actor can continue, or the run is over. */
  async #runLoop(): Promise<void> {
    const isolate = this.#isolate, checks = this.#checks;
    await turn();
    if (this.#mode !== "close") this.#idle = [];
    try {
      await this.#loop();
    } catch (error) {
      if (error instanceof ReplayError) checks.fail("replay", error);
      else checks.break(error);
    }
    isolate.isRunning = false;
    if (checks.isOver) return;
    if (this.#mode !== "close") this.#idle = describeIdle(isolate);
    const waits = describeWaits(isolate);
    if (waits.length > 0 && this.#mode !== "close" && this.#clock.remaining().length === 0) {
      checks.fail("deadlock", named("Deadlock", "no actor can continue"), waits);
    }
    this.#waits.wake();
  }

  async #loop(): Promise<void> {
    const { picker, asks, unwinding } = this.#isolate, checks = this.#checks, waits = this.#waits;
    const { maxSteps = MAX_STEPS } = this.options, recorder = this.#recorder;
    while (!checks.isOver || this.#mode === "close") {
      if (unwinding.size > 0) await this.#unwind();
      const external = this.#mode === "close" ? undefined : this.#external.ended();
      if (external) await external;
      const work = picker.next();
      if (checks.isOver && this.#mode !== "close") return;
      if (work) {
        const ended = this.#mode === "close" ? handleNext(this.#isolate, work) : this.#handle(work);
        if (ended) await ended;
        if (recorder.steps >= maxSteps) {
          const hint = this.#clock.next() === undefined ? "" : "; timers run: see world.advance";
          checks.fail("livelock", named("Livelock", `no end after ${maxSteps} steps${hint}`));
        }
      } else if (!await this.#passTime()) return;
      waits.lookAtAnswers(asks);
      if (this.#mode === "settle" && recorder.steps >= this.#settleUntil) {
        this.#mode = "explore";
        waits.isVisible = true;
        waits.wake();
      }
      if (waits.isVisible) {
        waits.isVisible = false;
        await turn();
      }
    }
  }

  /** Handles a message; returns a promise of its end unless it has ended. */
  #handle(work: PendingMessage): Promise<void> | undefined {
    const { actor, envelope } = work, recorder = this.#recorder;
    const crash = this.#mode === "explore" && actor.state !== "stopping"
      ? this.#chooser.crashOf(actor.ref.id, recorder.steps)
      : undefined;
    this.#clock.reach(this.options.strategy?.time?.() ?? 0);
    recorder.begins(actor, envelope, this.#clock.now());
    if (crash?.kind === "crash-before") {
      // The handler has not started, so the name of the last step does not apply.
      actor.activity = "";
      kill(this.#isolate, work);
    } else {
      setRunningActor(actor.ref.id);
      if (crash?.kind === "crash-amid") {
        this.#crash = { actor, left: crash.sends ?? 0, unanswered: [] };
      }
      const ended = handleNext(this.#isolate, work);
      if (ended) return ended.then(() => this.#end(work, crash));
    }
    this.#end(work, crash);
    return undefined;
  }

  #end(work: PendingMessage, crash: Fault | undefined): void {
    const { actor, envelope } = work, view = this.#view;
    setRunningActor(undefined);
    this.#recorder.ends(actor);
    view.steps = this.#recorder.steps;
    // Actors whose answers were lost in the crash learn that the actor is gone.
    for (const ask of this.#crash?.unanswered ?? []) {
      actor.pendingReplies.set({ isolate: 0, ask }, true);
    }
    this.#crash = undefined;
    if (crash && crash.kind !== "crash-before") kill(this.#isolate, work);
    this.#chooser.clear();
    view.actor = actor.ref.id;
    view.type = envelope.message.type;
    view.name = actor.activity;
    if (!this.#checks.isOver) this.#checks.afterStep();
  }

  /** Delivers a message or an answer, unless a fault prevents it. */
  #deliver(frame: Frame, deliver: (frame: Frame) => void): void {
    if (this.#crash && isFromDead(this.#crash, frame)) return;
    const isOpen = this.#mode === "explore" && isActorRunning();
    const ends = isOpen ? endsOf(this.#isolate, frame) : undefined;
    const fault = ends && this.#chooser.delivery(ends.from.id, ends.to.id, this.#recorder.steps);
    deliverWith(fault, frame, deliver, this.#clock.after);
  }

  /** Lets time pass when no actor can continue; returns whether that changed anything. */
  async #passTime(): Promise<boolean> {
    const clock = this.#clock, checks = this.#checks, waits = this.#waits;
    // A handler that waits for something other than an answer may be about to continue.
    await turn();
    if (this.#isolate.picker.hasChanged) return true;
    if (this.#isolate.asks.size > 0) checks.waits = describeWaits(this.#isolate);
    if (clock.advance()) {
      checks.afterTime();
      return true;
    }
    if (clock.limit === Infinity || !waits.isWaiting || checks.isOver) return false;
    clock.reachLimit();
    checks.afterTime();
    waits.wake(clock.limit);
    waits.isVisible = true;
    return true;
  }

  /** Lets the handlers of stopping actors end before anything else, as they may still send. */
  async #unwind(): Promise<void> {
    for (const { ref, step } of this.#isolate.unwinding) {
      setRunningActor(ref.id);
      await new Promise<void>((resolve) => step!.wake = resolve);
    }
    setRunningActor(undefined);
  }

  /** Stops the actors. */
  async #close(): Promise<void> {
    const clock = this.#clock, { hangMs = HANG_MS } = this.options;
    this.#mode = "close";
    this.#waits.close();
    // Recurring timers must not prevent the end of the loop.
    clock.limit = clock.now();
    setRunningActor(undefined);
    // The loop may be about to end, or a handler may still run.
    const limit = performance.now() + hangMs;
    while (this.#isolate.isRunning && !this.#isHanging) {
      await turn();
      this.#isHanging = performance.now() > limit;
    }
    // Nothing else wakes the loop for the work that was left when the run ended.
    clock.limit = Infinity;
    this.#isolate.wake();
    // A handler that never ends is not awaited.
    if (!this.#isHanging) {
      let timer;
      const timeout = new Promise((resolve) => timer = setTimeout(resolve, hangMs));
      await Promise.race([this.#system.stop(), timeout]);
      clearTimeout(timer);
    }
    setFaultSites(undefined);
    this.#restoreGlobals();
  }
}

/**
 * Runs a scenario under a virtual clock in this isolate. A step handles one message, to the end of the
 * handler or to its next `ctx.ask`. The strategy chooses the next message, or a timer that fires before
 * it. Nothing else is random, so the same seed gives the same running hash. Simulations run one at a
 * time.
 *
 * @param options seed, strategy, faults and limits.
 * @param scenario spawns actors, sends messages and adds checks.
 * @returns the run, including its failure, which is not thrown.
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
  return await new SimulatedRun(options as SimulateOptions<unknown>).play(scenario);
}

interface NamedCheck {
  readonly name: string;
  readonly check: Check;
}

/** A condition that must become true. */
interface Liveness extends NamedCheck, EventuallyOptions {
  /** When it became due; undefined while it is not due. */
  since?: { readonly ms: number; readonly steps: number } | undefined;
}

/** The checks of a run, until it is over. */
class RunChecks {
  /** The failure of the run. */
  failure: SimulationFailure | undefined;
  /** True after a failure or {@linkcode prune}: later results do not count. */
  isOver = false;
  /** True if the run was cut short because its rest is known. */
  isPruned = false;
  /** An error of a strategy, a check or the simulation itself. */
  broken: { readonly error: unknown } | undefined;
  /** The waiting actors when time last passed. */
  waits: readonly string[] = [];
  /** Checked after each step. */
  readonly invariants: NamedCheck[] = [];
  /** Checked at the end. */
  readonly endings: NamedCheck[] = [];
  readonly #ending = Promise.withResolvers<void>();
  /** Resolves when the run is over. */
  readonly over = this.#ending.promise;
  /** Checked until they become true. */
  #liveness: Liveness[] = [];

  /** @param view the view that checks receive. */
  constructor(private readonly view: View) {}

  /** Adds a condition that must become true. */
  eventually(name: string, check: Check, options: EventuallyOptions): void {
    this.#liveness.push({ ...options, name, check, since: options.when ? undefined : this.#now() });
  }

  /** Checks the invariants, and the time limits of other conditions. */
  afterStep(): void {
    this.#checkAll(this.invariants);
    this.afterTime();
  }

  /** Checks the time limits of conditions that must become true. */
  afterTime(): void {
    this.#checkLiveness(false);
  }

  /** Runs the last checks, after the scenario has ended and no actor can continue. */
  afterAll(): void {
    this.#checkAll(this.endings);
    this.#checkLiveness(true);
  }

  /** Ends the run with a failure. */
  fail(kind: SimulationFailure["kind"], error: unknown, waits: readonly string[] = []): void {
    if (this.isOver) return;
    const failure = failureOf(kind, error, this.view.steps, waits);
    // For a timeout, the actors that were waiting before it are the useful ones.
    const isTimeout = failure.name === "AskTimeoutError";
    this.failure = isTimeout ? { ...failure, waits: this.waits } : failure;
    this.#end();
  }

  /** Ends the run because its rest is known. */
  prune(): void {
    this.isPruned = true;
    this.#end();
  }

  /** Ends the run by an error that is not a failure of the actors. */
  break(error: unknown): void {
    this.broken = { error };
    this.#end();
  }

  #end(): void {
    this.isOver = true;
    this.#ending.resolve();
  }

  #now() {
    return { ms: this.view.now, steps: this.view.steps };
  }

  #checkAll(checks: readonly NamedCheck[]): void {
    for (const { name, check } of checks) {
      const problem = this.#problemOf(check);
      if (problem) this.fail("invariant", named(name, problem));
    }
  }

  /** @param isEnd true if nothing happens any more, so that every open condition is overdue. */
  #checkLiveness(isEnd: boolean): void {
    for (const one of this.#liveness) {
      const { name, when, withinMs = Infinity, withinSteps = Infinity } = one;
      if (!one.since && when?.(this.view)) one.since = this.#now();
      if (!one.since) continue;
      const ms = this.view.now - one.since.ms, steps = this.view.steps - one.since.steps;
      const missing = this.#problemOf(one.check);
      if (missing === undefined) one.since = undefined;
      // A condition that becomes true after its limit has failed.
      const isLate = ms > withinMs || steps > withinSteps;
      if (!isLate && (!isEnd || missing === undefined)) continue;
      const what = missing ?? "it came true";
      const message = `${what} ${ms} ms and ${steps} steps after it became due`;
      return this.fail("liveness", named(name, message));
    }
    this.#liveness = this.#liveness.filter(({ when, since }) => when || since);
  }

  /** Returns the problem that a check returns or throws. */
  #problemOf(check: Check): string | undefined {
    try {
      return check(this.view) || undefined;
    } catch (error) {
      return error instanceof Error ? error.message || error.name : `${error}`;
    }
  }
}
