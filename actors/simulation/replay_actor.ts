/**
 * Replays a single actor with the messages of a recorded run.
 *
 * @module
 */

import { type AnyHandlers, OTHERS } from "../runtime/actor.ts";
import { errorOf, refuseAsk } from "../runtime/asks.ts";
import {
  type ActorFactory,
  type ActorRef,
  type ActorSpec,
  ASK_TIMEOUT_MS,
  type AskCall,
  type AskOptions,
  type Context,
  type Message,
  type Reply,
  type SendOptions,
  type SpawnOptions,
} from "../runtime/mod.ts";
import { handlersOf } from "../runtime/spawning.ts";
import { turn } from "../runtime/steps.ts";
import { assertInput, functionOf } from "../runtime/types.ts";
import type { Effect } from "../runtime/observer.ts";
import type { Outcome } from "../runtime/wire.ts";
import { substream } from "../runtime/world.ts";
import { digestOf } from "./digest.ts";
import { type Journal, payloadOf, readJournal } from "./journal.ts";
import { describeEffect, type StepRecord, workIn } from "./recorder.ts";
import { HANG_MS, type SimulateOptions } from "./run.ts";
import { ReplayError } from "./strategies.ts";
import { exempt, forbidGlobals, setRunningActor } from "./determinism_guard.ts";

/** The first message of an actor, as the runtime sends it. */
interface Init {
  readonly self: ActorRef<Message>;
  /** Name of the export that made it. */
  readonly made: string;
  readonly init: unknown;
  readonly argument?: unknown;
}

/** A factory of any actor. */
type AnyFactory = ActorFactory<unknown, Message>;

/** The recorded run of an actor. */
interface Recorded {
  readonly seed: number;
  /** Returns the message of a step. */
  readonly messageOf: (step: StepRecord) => unknown;
  /** Gets each effect. Without it, effects must be the recorded ones. */
  readonly onEffect?: ((effect: Effect) => void) | undefined;
}

/** An actor that handles recorded messages, without other actors. */
class ReplayedActor {
  compared = 0;
  states = 0;
  readonly #self: ActorRef<Message>;
  /** Functions that settle the actor's open asks. */
  readonly #questions = new Map<number, (outcome: Outcome) => void>();
  readonly #streams = new Map<string, () => number>();
  readonly #cleanups: (() => void | Promise<void>)[] = [];
  #handlers: AnyHandlers = {};
  #expose: (() => unknown) | undefined;
  #asked = 0;
  /** The recorded step. */
  #step!: StepRecord;
  #did = 0;
  #read = 0;
  /** The activity that the actor set in the last step. */
  activity = "";
  /** Id of the asking actor, while the step's message is not answered. */
  #asker: string | undefined;
  #isWorking = false;
  #state: "ready" | "stopping" = "ready";
  /** The error that its handler has thrown. */
  error: unknown;
  #mismatch: ReplayError | undefined;

  constructor(
    private readonly recorded: Recorded,
    private readonly factory: AnyFactory,
    first: StepRecord,
    private readonly hangMs: number,
  ) {
    this.#self = (recorded.messageOf(first) as Init).self;
  }

  /** Handles the message of a step and compares the effects. */
  async play(step: StepRecord): Promise<void> {
    this.#step = step;
    this.#did = this.#read = 0;
    const message = this.recorded.messageOf(step) as Message;
    setRunningActor(step.actor);
    if (workIn(step) === "answer") this.#answer(message);
    else this.#begin(step, message);
    await this.#untilSettled();
    setRunningActor(undefined);
    this.#compare();
  }

  #begin(step: StepRecord, message: Message): void {
    this.activity = "";
    this.#asker = step.isQuestion && step.from.slice(0, step.from.lastIndexOf("#"));
    this.#isWorking = true;
    const kind = workIn(step);
    const work = async () => {
      if (kind === "init") {
        const { made, init, argument } = message as unknown as Init;
        const handlers = await this.factory(this.#context(), init, argument);
        this.#handlers = handlersOf(this.#self.id, made, handlers);
      } else if (kind === "finish") {
        for (const cleanup of this.#cleanups.splice(0).reverse()) await cleanup();
      } else {
        const type = Object.hasOwn(this.#handlers, step.type) ? step.type : OTHERS;
        await this.#handlers[type]?.(message);
      }
    };
    work().catch((error) => this.error = error).finally(() => this.#isWorking = false);
  }

  /** Waits until the step ends or waits for an answer. */
  async #untilSettled(): Promise<void> {
    const limit = realNow() + this.hangMs;
    do {
      // Only the timer is exempt, not the actor's code until it fires.
      const [over] = exempt(() => [turn()]);
      await over;
      if (realNow() > limit) throw this.#differs("a handler that ends", "one that does not");
    } while (this.#isWorking && this.#questions.size === 0 && !this.#mismatch);
  }

  #compare(): void {
    const { did, name = "", state } = this.#step;
    if (this.#mismatch) throw this.#mismatch;
    if (this.recorded.onEffect) return;
    if (this.#did < did.length) {
      throw this.#differs(quote(did[this.#did]), `${this.error || "nothing more"}`);
    }
    if (this.activity !== name) throw this.#differs(quote(name), quote(this.activity));
    if (state === undefined || !this.#expose) return;
    this.states++;
    const received = digestOf(this.#expose());
    if (received !== state) throw this.#differs(`state ${state}`, `state ${received}`);
  }

  /** Records the first difference from the recorded run. */
  #differs(expected: string, received: string): ReplayError {
    return this.#mismatch ??= new ReplayError(this.#step.n, expected, received);
  }

  /** Compares an effect of the actor with the recorded one. */
  #does(effect: Effect, { transfer = [] }: Pick<SendOptions, "transfer"> = {}): void {
    if (this.recorded.onEffect) return this.recorded.onEffect(effect);
    const received = describeEffect(effect), expected = this.#step.did[this.#did++];
    if (received === expected) this.compared++;
    else this.#differs(quote(expected), quote(received));
    // They have left the actor.
    for (const buffer of transfer) if (buffer?.detached === false) buffer.transfer();
  }

  #answer(message: Message): void {
    const { ask, outcome } = message as Message & { ask: number; outcome: Outcome };
    const settle = this.#questions.get(ask);
    if (!settle) throw this.#differs(`an answer to question ${ask}`, "no such question");
    this.#questions.delete(ask);
    settle(outcome);
  }

  #takeReply(): Reply {
    if (this.#asker === undefined) return () => {};
    const to = { id: this.#asker, isolate: 0, serial: 0 };
    this.#asker = undefined;
    return (value, options) => this.#does({ kind: "reply", to, value }, options);
  }

  #nextReading(): number {
    if (this.recorded.onEffect) return 0;
    const { reads = [] } = this.#step, reading = reads[this.#read++];
    if (reading !== undefined) return reading;
    throw this.#differs(`${reads.length} readings of the clock`, "one more");
  }

  #draw(label: string): number {
    const { seed } = this.recorded, name = `${this.#self.id}\0${label}`;
    return this.#streams.getOrInsertComputed(label, () => substream(seed, name))();
  }

  /** Returns the recorded address of a child. */
  #nextChild(): ActorRef {
    // An id may hold spaces.
    const child = /^spawned (.*) (\d+)\/(\d+)$/s.exec(this.#step.did[this.#did] ?? "");
    if (!child) throw this.#differs("no child", "a child");
    const to = { id: child[1]!, isolate: Number(child[2]), serial: Number(child[3]) };
    this.#does({ kind: "spawned", to });
    return to;
  }

  #wait(to: ActorRef, type: string, timeoutMs: number, signal?: AbortSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#questions.set(this.#asked++, (outcome) => {
        if (outcome.status === "answered") resolve(outcome.value);
        else if (outcome.status === "aborted" && signal?.aborted) reject(signal.reason);
        else reject(errorOf({ from: this.#self, to, type, timeoutMs }, outcome));
      });
    });
  }

  #context(): Context<Message> {
    return {
      self: this.#self,
      send: (to, value, options) => this.#does({ kind: "send", to, value }, options),
      ask: ((to: ActorRef, value: Message, options: AskOptions = {}) => {
        const { timeoutMs = ASK_TIMEOUT_MS, signal } = options;
        this.#does({ kind: "ask", to, value }, options);
        // Such questions were never sent.
        const step = this.#isWorking || this.#questions.size > 0 || undefined;
        const asker = { ref: this.#self, state: this.#state, step };
        const refusal = refuseAsk({ asks: this.#questions }, asker, to, value, options);
        if (refusal) return Promise.reject(refusal);
        if (signal?.aborted) return Promise.reject(signal.reason);
        return this.#wait(to, value.type, timeoutMs, signal);
      }) as AskCall,
      reply: (value, options) => this.#takeReply()(value, options),
      deferReply: () => this.#takeReply(),
      refuse: (value) => this.#does({ kind: "refuse", value }),
      spawn: <I, T extends Message>(spec: ActorSpec<I, T>, init: I, options: SpawnOptions) => {
        const { id } = options;
        this.#does({ kind: "spawn", value: { made: spec.export, init, id } }, options);
        return this.#nextChild() as ActorRef<Message> as ActorRef<T>;
      },
      watch: (to) => this.#does({ kind: "watch", to }),
      after: (delayMs, message, key) =>
        this.#does({ kind: "after", value: { delayMs, message, key } }),
      now: () => this.#nextReading(),
      random: (label) => this.#draw(label),
      setActivity: (text) => void (this.activity = String(text)),
      busy: async (run) => await run(),
      external: <T>() => {
        this.#does({ kind: "outside" });
        return this.#wait(this.#self, "outside", Infinity) as Promise<T>;
      },
      // The sums are recorded messages.
      allReduce() {},
      expose: (read) => void (this.#expose = read),
      defer: (cleanup) => void this.#cleanups.push(cleanup),
      stop: (to?: ActorRef, options?: object) => {
        this.#does({ kind: "stop", ...to && { to }, ...options && { value: options } });
        if (!to) this.#state = "stopping";
      },
    };
  }
}

/** The original function, before globals are forbidden. */
// deno-lint-ignore determinism/no-ambient -- it limits the time of a replay, and no actor sees it
const realNow = performance.now.bind(performance);

function quote(text: string | undefined): string {
  return text === undefined ? "nothing more" : `"${text}"`;
}

/** Options of {@linkcode replayInbox}; `onStep` is called after each step that equals the recorded one. */
export interface InboxOptions extends Pick<SimulateOptions, "trusted" | "onStep" | "hangMs"> {
  /** Id of the actor. Default: the only actor of this factory in the journal. */
  readonly id?: string;
}

/** The result of {@linkcode replayInbox}. */
export interface InboxReplay {
  /** Id of the actor. */
  readonly actor: string;
  /** Number of handled messages. */
  readonly steps: number;
  /** Number of compared messages, answers and other effects. */
  readonly compared: number;
  /** Number of compared states; 0 if the actor exposes none. */
  readonly states: number;
}

/**
 * Creates an actor and replays the messages, clock readings and random numbers of a recorded run. After
 * each message, the actor's effects, activity and exposed state must equal the recorded ones. So a
 * recorded run is a test of the single actor, and of later versions with the same protocol.
 *
 * @param actor the module and export of its factory, or the factory.
 * @param journal a journal with payloads, or its path.
 * @param options id of the actor, if there are several.
 * @returns the number of compared items.
 * @throws {ReplayError} (as a rejection) at the first difference.
 * @throws {RangeError} (as a rejection) when the journal has no such actor or no payloads.
 *
 * @example
 * ```ts
 * import { beginJournal, replayInbox } from "@troupe/troupe/testing";
 * import { createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const double = (ctx) => ({
 *   Double({ n }) { ctx.reply(2 * n); },
 * });
 * export const changed = (ctx) => ({ Double({ n }) { ctx.reply(n + n + (n > 2 ? 1 : 0)); } });`;
 * const path = await Deno.makeTempFile();
 * {
 *   await using system = createSystem({ observer: await beginJournal({ path, payloads: true }) });
 *   const double = system.spawn<undefined, { type: "Double"; n: number }>(
 *     { module, export: "double" },
 *     undefined,
 *     { id: "double" },
 *   );
 *   for (const n of [1, 2, 3]) await system.ask(double, { type: "Double", n });
 * }
 * const { steps, compared } = await replayInbox({ module, export: "double" }, path);
 * assert.deepEqual({ steps, compared }, { steps: 5, compared: 3 });
 * await assert.rejects(
 *   replayInbox({ module, export: "changed" }, path, { id: "double" }),
 *   /Cannot replay step 3: it must be "reply system .*", received "reply system .*"/,
 * );
 * await Deno.remove(path);
 * ```
 */
export async function replayInbox<I, M extends Message>(
  actor: ActorSpec<I, M> | ActorFactory<I, M>,
  journal: Journal | string,
  options: InboxOptions = {},
): Promise<InboxReplay> {
  const read = typeof journal === "string" ? await readJournal(journal) : journal;
  const factory = typeof actor === "function"
    ? actor
    : functionOf("Cannot replay", actor, await import(actor.module));
  const id = options.id ?? findActor(read, typeof actor === "function" ? actor.name : actor.export);
  const steps = read.steps.filter((step) => step.actor === id), [first] = steps;
  const received = first ? `"${first.type}"` : "none of that actor";
  const must = `Cannot replay "${id}": the journal must hold its first message`;
  assertInput(first?.type === "init", must, received);
  const { trusted = [], hangMs = HANG_MS } = options,
    restoreGlobals = forbidGlobals(trusted, () => {});
  try {
    const recorded = {
      seed: read.header.seed,
      messageOf: (step: StepRecord) => payloadOf(read, step),
    };
    const lives: ReplayedActor[] = [];
    for (const step of steps) {
      // An actor that was restarted with its id is a new one.
      if (workIn(step) === "init") {
        lives.push(new ReplayedActor(recorded, factory as AnyFactory, step, hangMs));
      }
      await lives.at(-1)!.play(step);
      options.onStep?.(step);
    }
    const sum = (of: "compared" | "states") => lives.reduce((total, one) => total + one[of], 0);
    return { actor: id, steps: steps.length, compared: sum("compared"), states: sum("states") };
  } finally {
    restoreGlobals();
  }
}

/** A message to an actor that plays alone. */
export interface PlayedMessage {
  /** Id of the sender, and number of its earlier messages to this actor. */
  readonly from: string;
  readonly message: Message;
}

/**
 * Creates an actor and lets it handle messages without other actors, up to the first error.
 *
 * @param messages The first one is its init.
 * @param onEffect Gets each effect.
 * @param onStep Gets each message after it was handled, and the activity of the actor.
 * @returns the error that a handler has thrown, if any.
 */
export async function playAlone(
  factory: AnyFactory,
  messages: readonly PlayedMessage[],
  { trusted, hangMs }: Required<Pick<InboxOptions, "trusted" | "hangMs">>,
  onEffect: (effect: Effect) => void,
  onStep: (played: PlayedMessage, activity: string) => void,
): Promise<unknown> {
  const actor = (messages[0]!.message as unknown as Init).self.id;
  const steps = messages.map(({ from, message: { type } }, n): StepRecord => ({
    ...{ n, actor, from, type, isolate: 0, t: 0, payload: "", did: [], chain: "", hash: "" },
  }));
  const messageOf = ({ n }: StepRecord) => messages[n]!.message;
  const restoreGlobals = forbidGlobals(trusted, () => {});
  try {
    const recorded = { seed: 0, messageOf, onEffect };
    const alone = new ReplayedActor(recorded, factory, steps[0]!, hangMs);
    for (const step of steps) {
      await alone.play(step);
      onStep(messages[step.n]!, alone.activity);
      if (alone.error !== undefined) return alone.error;
    }
  } finally {
    restoreGlobals();
  }
}

/** Returns the only actor of the export with this name. */
function findActor(journal: Journal, name: string): string {
  const made = journal.steps.filter((step) =>
    workIn(step) === "init" && (payloadOf(journal, step) as Init).made === name
  ).map(({ actor }) => actor);
  const ids = [...new Set(made)], found = ids.join(", ") || "none";
  const must = "id must be given when the journal has not exactly one such actor";
  assertInput(ids.length === 1, `Cannot replay "${name}": ${must}`, found);
  return ids[0]!;
}
