/**
 * The machine of a simulated run: the loop that handles messages, and who decides in it.
 *
 * [Note: standing still] The scenario's code must never run beside the loop, or the ticks of its
 * promises would decide what is sent when. So the loop begins a turn of the event loop after it is
 * woken, and lets one pass after every step that ended something the scenario may wait for.
 *
 * @module
 */

import { type Candidate, NONE_YET, type Work } from "../../runtime/mailbox/choose.ts";
import { setFaultSites } from "../../runtime/fault_sites.ts";
import type { Isolate } from "../../runtime/isolate/isolate.ts";
import { ActorFailedError, type AskCall, type System } from "../../runtime/mod.ts";
import { turn } from "../../runtime/world/pace.ts";
import { substream } from "../../runtime/world/random.ts";
import { openSystem } from "../../runtime/root.ts";
import { dispatch } from "../../runtime/isolate/steps.ts";
import type { Frame } from "../../runtime/transports/wire.ts";
import type { ActorRef, Message } from "../../runtime/types.ts";
import { failureOf, type SimulationFailure } from "../failure.ts";
import { deliverWith, endsOf } from "../faults/carry.ts";
import { Chooser, PRUNED } from "./chooser.ts";
import { type Dying, isFromDead, kill } from "../faults/crash.ts";
import { Duties, type Unmet } from "../checks/eventually.ts";
import type { Fault } from "../faults/faults.ts";
import { Recorder } from "../journal/recorder.ts";
import { HANG_MS, MAX_STEPS, type Scenario, type SimulateOptions } from "../simulate.ts";
import { SimulatedDisk } from "../disk/simulated_disk.ts";
import { describeIdle, describeWaits, stateOf } from "./state.ts";
import { ReplayError } from "../strategies/replay.ts";
import { FIRST_EXPECTED_STEPS } from "../strategies/strategy.ts";
import { exempt, isActorAtWork, setActorAtWork, setTraps } from "../traps/traps.ts";
import { createVirtualClock } from "./virtual_clock.ts";
import { type Check, type Settling, type View, viewOf, type World } from "../world.ts";

/** How long an actor in the simulation may take to stop, in virtual milliseconds. */
const STOP_GRACE_MS = 5000;

/** Modules of actors that were loaded; an import that waits for nothing is still a turn. */
const modules = new Map<string, Record<string, unknown>>();

async function load(module: string): Promise<Record<string, unknown>> {
  const known = modules.get(module);
  if (known) return known;
  // What a module does when it is first loaded is not part of any run.
  const exports: Record<string, unknown> = await exempt(() => import(module));
  modules.set(module, exports);
  return exports;
}

interface NamedCheck {
  readonly name: string;
  readonly check: Check;
}

/** A wait of the scenario's, until nobody can do anything or a moment of virtual time is reached. */
interface Waiter {
  readonly until: number;
  readonly resolve: () => void;
}

/** One simulated run. */
export class Machine {
  readonly chooser: Chooser;
  failure: SimulationFailure | undefined;
  /** Who waits for a message when nobody can do anything any more. */
  waiting: readonly string[] = [];

  readonly #options: SimulateOptions<unknown>;
  readonly #clock = createVirtualClock();
  readonly #recorder: Recorder;
  readonly #last = { actor: "", type: "", name: "" };
  readonly #invariants: NamedCheck[] = [];
  readonly #endings: NamedCheck[] = [];
  readonly #duties = new Duties();
  readonly #disk: SimulatedDisk;
  readonly #around = { state: () => this.#state(), actors: () => this.#view.actors };
  readonly #over = Promise.withResolvers<void>();
  readonly #removeTraps: () => void;
  readonly #system: System;
  readonly #view: View;
  #isolate!: Isolate;
  /** Handles what comes in plain order and writes nothing down, except as it says. */
  #mode: "explore" | "settle" | "close" = "explore";
  #isOver = false;
  #isPruned = false;
  /** Something ended that the scenario may wait for. */
  #isVisible = false;
  readonly #openAsks = new Set<number>();
  /** What the scenario waits for besides answers, and until which moment. */
  #waiters: Waiter[] = [];
  /** The scenario says how far time goes. */
  #isTimed = false;
  /** Number of steps after which the settling ends. */
  #settleUntil = Infinity;
  #waits: readonly string[] = [];
  #isHanging = false;
  /** The actor at work, if it crashes before the end of its handler. */
  #dying: Dying | undefined;
  /** An error of a strategy, a check or the machine itself: not of the run. */
  #crash: { readonly error: unknown } | undefined;

  constructor(options: SimulateOptions<never> | SimulateOptions<unknown>) {
    const { seed = 0, faults, trusted = [], digests } = options;
    this.#options = options as SimulateOptions<unknown>;
    this.chooser = new Chooser(options, this.#clock);
    this.#recorder = new Recorder(0, {
      sink: options.onStep,
      keep: options.onMessage,
      decision: this.chooser.decision,
      digests,
    });
    this.#removeTraps = setTraps(trusted, (error) => this.#fail("determinism", error));
    if (faults) {
      setFaultSites((site) =>
        this.#mode === "explore" && isActorAtWork() && this.chooser.failsAt(site, this.steps)
      );
    }
    this.#disk = new SimulatedDisk({
      fails: (operation, needsRoom) =>
        this.#mode === "explore"
          ? this.chooser.failDisk(operation, needsRoom, this.steps)
          : undefined,
      random: (operation) => substream(seed, `disk#${operation}`),
    });
    const system = openSystem({
      seed,
      clock: this.#clock,
      choose: (candidates) => this.#choose(candidates),
      offers: options.offers,
      // Only a record needs to know what actors do.
      observer: options.onStep ? this.#recorder : undefined,
      load,
      carry: faults && ((frame, deliver) => this.#carry(frame, deliver)),
      breathe: () => undefined,
      stopGraceMs: STOP_GRACE_MS,
      run: () => this.#run(),
      attach: (isolate) => void (this.#isolate = isolate),
      onFailure: (failure) => this.#fail("actor", new ActorFailedError(failure)),
    });
    // The run fails by it already.
    system.failed.catch(() => {});
    this.#system = this.#watched(system);
    this.#view = viewOf(this.#isolate, this.#last, () => this.steps, system.deadLetters);
  }

  /** Steps so far. */
  get steps(): number {
    return this.#recorder.steps;
  }

  /** The running hash. */
  get hash(): string {
    return this.#recorder.hash;
  }

  /** Plays a scenario to its end, or to the first failure. */
  async play<T, C>(scenario: Scenario<T, C>): Promise<{ readonly is: T } | undefined> {
    const { seed = 0, start = { run: 0, expectedSteps: FIRST_EXPECTED_STEPS } } = this.#options;
    const alarm = setInterval(this.#watchdog(), this.#options.hangMs ?? HANG_MS);
    let value: { readonly is: T } | undefined;
    try {
      const { strategy } = this.chooser;
      strategy.begin({ seed, ...start });
      const ending = (async () => {
        value = { is: await scenario(this.#world<C>()) };
        await this.#idle(this.#isTimed ? this.#clock.now() : Infinity);
        this.#check(this.#endings);
        this.#judge(this.#duties.end(this.#view));
      })().catch((error) => this.#fail("scenario", error));
      await Promise.race([ending, this.#over.promise]);
      if (!this.#isPruned && !this.#crash) strategy.end?.(() => this.#state());
    } finally {
      clearInterval(alarm);
    }
    if (this.#crash) throw this.#crash.error;
    return this.failure || this.#isPruned ? undefined : value;
  }

  /** Stops the actors, so that nothing of them is left. */
  async close(): Promise<void> {
    this.#mode = "close";
    // Timers that start again and again must not keep the loop from its end.
    this.#clock.limit = this.#clock.now();
    setActorAtWork(undefined);
    // The loop may be about to see that the run is over; or a handler may still be at work.
    const limit = performance.now() + (this.#options.hangMs ?? HANG_MS);
    while (this.#isolate.isRunning && !this.#isHanging) {
      await turn();
      this.#isHanging = performance.now() > limit;
    }
    // What was left to do when the run was over has nobody else to wake the loop for it.
    this.#clock.limit = Infinity;
    this.#isolate.wake();
    if (!this.#isHanging) await this.#stop();
    setFaultSites(undefined);
    this.#removeTraps();
  }

  /** Stops the system, but waits for no handler that never ends. */
  async #stop(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, this.#options.hangMs ?? HANG_MS);
    await Promise.race([this.#system.stop(), promise]);
    clearTimeout(timer);
  }

  #world<C>(): World<C> {
    return {
      system: this.#system,
      configuration: this.#options.configuration as C,
      settle: (until = {}) => this.#settle(typeof until === "number" ? { steps: until } : until),
      idle: () => this.#idle(Infinity),
      advance: (ms) => this.#advance(ms),
      invariant: (name, check) => void this.#invariants.push({ name, check }),
      eventually: (name, check, options = {}) => this.#duties.add(name, check, options, this.#view),
      disk: this.#disk,
      atEnd: (name, check) => void this.#endings.push({ name, check }),
    };
  }

  /** The system as the scenario gets it: tells the loop what it waits for. */
  #watched(system: System): System {
    return {
      ...system,
      ask: ((to: ActorRef<Message>, message: Message, options?: object) => {
        this.#openAsks.add(this.#isolate.nextAsk);
        this.#setLimit();
        return system.ask(to, message, options);
      }) as AskCall,
      watch: (ref, onDown) =>
        system.watch(ref, (down) => {
          this.#isVisible = true;
          onDown(down);
        }),
    };
  }

  #idle(until: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiters.push({ until, resolve });
      this.#setLimit();
      this.#isolate.wake();
    });
  }

  async #advance(ms: number): Promise<void> {
    if (!(ms >= 0)) throw new RangeError(`Cannot advance: ms must be 0 or more, received ${ms}`);
    this.#isTimed = true;
    await this.#idle(this.#clock.now() + ms);
  }

  /** Handles messages in plain order until there are none, `steps` are done or `ms` have passed. */
  async #settle({ steps = Infinity, ms = Infinity }: Settling): Promise<void> {
    this.#mode = "settle";
    this.#settleUntil = this.steps + steps;
    this.#isTimed ||= ms < Infinity;
    await this.#idle(this.#clock.now() + ms);
    this.#mode = "explore";
  }

  /** Keeps time from passing the moment at which the scenario has to go on. */
  #setLimit(): void {
    if (this.#mode === "close") return;
    const isOpen = !this.#isTimed || this.#openAsks.size > 0;
    this.#clock.limit = this.#waiters.length > 0
      ? Math.min(...this.#waiters.map(({ until }) => until))
      : isOpen
      ? Infinity
      : this.#clock.now();
  }

  async #run(): Promise<void> {
    await turn();
    if (this.#mode !== "close") this.waiting = [];
    try {
      await this.#loop();
    } catch (error) {
      if (error instanceof ReplayError) this.#fail("replay", error);
      else this.#crash = { error };
      this.#end();
    }
    this.#isolate.isRunning = false;
    if (this.#isOver) return;
    if (this.#mode !== "close") this.waiting = describeIdle(this.#isolate);
    const waits = describeWaits(this.#isolate);
    if (waits.length > 0 && this.#mode !== "close" && this.#clock.remaining().length === 0) {
      this.#fail("deadlock", named("Deadlock", "nobody can do anything"), waits);
    }
    this.#wakeWaiters();
  }

  /** Lets the scenario go on where it waits for no later moment than this. */
  #wakeWaiters(until = Infinity): void {
    const reached = this.#waiters.filter((waiter) => waiter.until <= until);
    this.#waiters = this.#waiters.filter((waiter) => waiter.until > until);
    this.#setLimit();
    for (const { resolve } of reached) resolve();
  }

  async #loop(): Promise<void> {
    const { picker, asks, unwinding } = this.#isolate, { maxSteps = MAX_STEPS } = this.#options;
    while (!this.#isOver || this.#mode === "close") {
      if (unwinding.size > 0) await this.#unwind();
      const work = picker.next();
      if (this.#isOver && this.#mode !== "close") return;
      if (work) {
        const ended = this.#mode === "close" ? dispatch(this.#isolate, work) : this.#step(work);
        if (ended) await ended;
        if (this.steps >= maxSteps) {
          const hint = this.#clock.next() === undefined ? "" : "; timers run: see world.advance";
          this.#fail("livelock", named("Livelock", `no end after ${maxSteps} steps${hint}`));
        }
      } else if (!await this.#rest()) return;
      for (const id of this.#openAsks) {
        if (asks.has(id)) continue;
        this.#openAsks.delete(id);
        this.#setLimit();
        this.#isVisible = true;
      }
      if (this.#mode === "settle" && this.steps >= this.#settleUntil) {
        this.#mode = "explore";
        this.#isVisible = true;
        this.#wakeWaiters();
      }
      if (this.#isVisible) {
        this.#isVisible = false;
        await turn();
      }
    }
  }

  /** Nobody can do anything: lets time pass, and says whether that changed anything. */
  async #rest(): Promise<boolean> {
    const { picker, asks } = this.#isolate;
    // A handler that waits for something other than an answer may be about to go on.
    await turn();
    if (picker.hasChanged) return true;
    if (asks.size > 0) this.#waits = describeWaits(this.#isolate);
    const clock = this.#clock;
    if (clock.advance()) {
      this.#judge(this.#duties.look(this.#view));
      return true;
    }
    if (clock.limit === Infinity || this.#waiters.length === 0 || this.#isOver) return false;
    clock.reachLimit();
    this.#judge(this.#duties.look(this.#view));
    this.#wakeWaiters(clock.limit);
    this.#isVisible = true;
    return true;
  }

  /** Lets the handlers of actors that stop come to their ends before anything else happens: on
   * their way they may still send. */
  async #unwind(): Promise<void> {
    for (const actor of this.#isolate.unwinding) {
      setActorAtWork(actor.ref.id);
      await new Promise<void>((resolve) => actor.step!.wake = resolve);
    }
    setActorAtWork(undefined);
  }

  /** Handles a message, and promises the end of that if it is not now. */
  #step(work: Work): Promise<void> | undefined {
    const { actor, envelope } = work;
    const crash = this.#mode === "explore" && actor.state !== "stopping"
      ? this.chooser.crashOf(actor.ref.id, this.steps)
      : undefined;
    this.#recorder.begins(actor, envelope, this.#clock.now());
    let ended: Promise<void> | undefined;
    if (crash?.kind === "crash-before") {
      // It has not begun, so what it did last is not what it does.
      actor.doing = "";
      kill(this.#isolate, work);
    } else {
      setActorAtWork(actor.ref.id);
      if (crash?.kind === "crash-amid") {
        this.#dying = { actor, left: crash.sends ?? 0, unanswered: [] };
      }
      ended = dispatch(this.#isolate, work);
      if (ended) return ended.then(() => this.#ended(work, crash));
    }
    this.#ended(work, crash);
    return undefined;
  }

  #ended(work: Work, crash: Fault | undefined): void {
    const { actor, envelope } = work;
    setActorAtWork(undefined);
    this.#recorder.ends(actor);
    // Who waits for an answer that came too late learns that the actor is gone.
    for (const ask of this.#dying?.unanswered ?? []) actor.owed.set({ isolate: 0, ask }, true);
    this.#dying = undefined;
    if (crash && crash.kind !== "crash-before") kill(this.#isolate, work);
    this.chooser.clear();
    this.#last.actor = actor.ref.id;
    this.#last.type = envelope.message.type;
    this.#last.name = actor.doing;
    if (this.#isOver) return;
    this.#check(this.#invariants);
    this.#judge(this.#duties.look(this.#view));
  }

  #choose(candidates: readonly Candidate[]): number {
    if (this.#mode !== "explore") return 0;
    const choice = this.chooser.choose(candidates, this.steps, this.#around);
    if (choice !== PRUNED) return choice;
    this.#isPruned = true;
    this.#end();
    return NONE_YET;
  }

  #carry(frame: Frame, deliver: (frame: Frame) => void): void {
    if (this.#dying && isFromDead(this.#dying, frame)) return;
    const isOpen = this.#mode === "explore" && isActorAtWork();
    const ends = isOpen ? endsOf(this.#isolate, frame) : undefined;
    const fault = ends && this.chooser.carry(ends.from.id, ends.to.id, this.steps);
    deliverWith(fault, frame, deliver, this.#clock.after);
  }

  #state(): number {
    return stateOf(this.#isolate, this.#clock, this.#options.offers ?? "by-sender");
  }

  #check(checks: readonly NamedCheck[]): void {
    for (const { name, check } of checks) {
      try {
        const problem = check(this.#view);
        if (problem) this.#fail("invariant", named(name, problem));
      } catch (error) {
        this.#fail("invariant", named(name, error instanceof Error ? error.message : `${error}`));
      }
    }
  }

  /** Something that had to come true has not. */
  #judge(unmet: Unmet | undefined): void {
    if (unmet) this.#fail("liveness", named(unmet.name, unmet.message));
  }

  /** The run has failed; what comes after the first failure says nothing more. */
  #fail(kind: SimulationFailure["kind"], error: unknown, waits: readonly string[] = []): void {
    if (this.#isOver) return;
    const failure = failureOf(kind, error, this.steps, waits);
    // When a question times out, who waited for whom is what one wants to know.
    const isTimeout = failure.name === "AskTimeoutError";
    this.failure = isTimeout ? { ...failure, waits: this.#waits } : failure;
    this.#end();
  }

  #end(): void {
    this.#isOver = true;
    this.#over.resolve();
  }

  /** Looks now and then, by the real clock, whether the run still goes on. */
  #watchdog(): () => void {
    let steps = -1;
    return () => {
      if (this.#isOver) return;
      if (this.steps === steps) {
        this.#isHanging = true;
        const waits = describeWaits(this.#isolate);
        this.#fail("deadlock", named("Hang", "a handler or the scenario does not end"), waits);
      }
      steps = this.steps;
    };
  }
}

function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}
