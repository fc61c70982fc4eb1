/**
 * An actor without others: what it would have from the world comes from a journal, and what it
 * does is compared with that.
 *
 * @module
 */

import type { AnyHandlers } from "../../runtime/actor/actor.ts";
import { errorOf } from "../../runtime/actor/asks.ts";
import { handlersOf } from "../../runtime/actor/methods.ts";
import { OTHERS } from "../../runtime/handlers.ts";
import type {
  ActorFactory,
  ActorRef,
  ActorSpec,
  AskCall,
  Context,
  Message,
  SpawnOptions,
} from "../../runtime/mod.ts";
import { turn } from "../../runtime/world/pace.ts";
import { substream } from "../../runtime/world/random.ts";
import type { Outcome } from "../../runtime/transports/wire.ts";
import { digestOf } from "../digest.ts";
import { type Journal, payloadOf } from "../journal/journal.ts";
import { describeEffect, type StepRecord } from "../journal/recorder.ts";
import { ReplayError } from "../strategies/replay.ts";
import { exempt, setActorAtWork } from "../traps/guard.ts";

/** The first message of an actor, as the runtime sends it. */
export interface Init {
  readonly self: ActorRef<Message>;
  /** Name of the export that made it. */
  readonly made: string;
  readonly init: unknown;
  readonly argument?: unknown;
}

/** A factory, whatever it makes. */
export type AnyFactory = ActorFactory<unknown, Message>;

/** An actor that handles what it was sent then, without others. */
export class ReplayedActor {
  compared = 0;
  states = 0;
  readonly #self: ActorRef<Message>;
  /** What settles the questions that the actor waits for. */
  readonly #questions = new Map<number, (outcome: Outcome) => void>();
  readonly #streams = new Map<string, () => number>();
  readonly #cleanups: (() => void | Promise<void>)[] = [];
  #handlers: AnyHandlers = {};
  #expose: (() => unknown) | undefined;
  #asked = 0;
  /** What was recorded of the step. */
  #step!: StepRecord;
  #did = 0;
  #read = 0;
  #doing = "";
  /** Id of who asked, while the step's message is a question that is not answered. */
  #asker: string | undefined;
  #isWorking = false;
  #thrown: { readonly error: unknown } | undefined;
  #mismatch: ReplayError | undefined;

  constructor(
    private readonly journal: Journal,
    private readonly factory: AnyFactory,
    first: StepRecord,
    private readonly hangMs: number,
  ) {
    this.#self = (payloadOf(journal, first) as Init).self;
  }

  /** Handles the message of a step and compares what comes of it. */
  async play(step: StepRecord): Promise<void> {
    this.#step = step;
    this.#did = this.#read = 0;
    const message = payloadOf(this.journal, step) as Message;
    setActorAtWork(step.actor);
    if (step.type.startsWith("answer:")) this.#answer(message);
    else this.#begin(step, message);
    await this.#rest();
    setActorAtWork(undefined);
    this.#compare();
  }

  #begin(step: StepRecord, message: Message): void {
    this.#doing = "";
    this.#asker = step.isQuestion && step.from.slice(0, step.from.lastIndexOf("#"));
    this.#isWorking = true;
    const work = async () => {
      if (step.type === "init") {
        const { made, init, argument } = message as unknown as Init;
        const handlers = await this.factory(this.#context(), init, argument);
        this.#handlers = handlersOf(this.#self.id, made, handlers);
      } else if (step.type === "finish") {
        for (const cleanup of this.#cleanups.splice(0).reverse()) await cleanup();
      } else await (this.#handlers[step.type] ?? this.#handlers[OTHERS])?.(message);
    };
    work().catch((error) => this.#thrown = { error }).finally(() => this.#isWorking = false);
  }

  /** Waits until the step is over or waits for an answer. */
  async #rest(): Promise<void> {
    const limit = realNow() + this.hangMs;
    do {
      // Only the timer is exempt, not what the actor does until it fires.
      const [over] = exempt(() => [turn()]);
      await over;
      if (realNow() > limit) throw this.#differs("a handler that ends", "one that does not");
    } while (this.#isWorking && this.#questions.size === 0 && !this.#mismatch);
  }

  #compare(): void {
    const { did, name = "", state } = this.#step;
    if (this.#mismatch) throw this.#mismatch;
    if (this.#did < did.length) {
      throw this.#differs(quote(did[this.#did]), `${this.#thrown?.error || "nothing more"}`);
    }
    if (this.#doing !== name) throw this.#differs(quote(name), quote(this.#doing));
    if (state === undefined || !this.#expose) return;
    this.states++;
    const received = digestOf(this.#expose());
    if (received !== state) throw this.#differs(`state ${state}`, `state ${received}`);
  }

  /** The first difference from the recorded run. */
  #differs(expected: string, received: string): ReplayError {
    return this.#mismatch ??= new ReplayError(this.#step.n, expected, received);
  }

  /** The actor does something: it must be what it did then. */
  #does(...effect: Parameters<typeof describeEffect>): void {
    const received = describeEffect(...effect), expected = this.#step.did[this.#did++];
    if (received === expected) this.compared++;
    else this.#differs(quote(expected), quote(received));
  }

  #answer(message: Message): void {
    const { ask, outcome } = message as Message & { ask: number; outcome: Outcome };
    const settle = this.#questions.get(ask);
    if (!settle) throw this.#differs(`an answer to question ${ask}`, "no such question");
    this.#questions.delete(ask);
    settle(outcome);
  }

  #takeReply(): (value: unknown) => void {
    if (this.#asker === undefined) return () => {};
    const to = { id: this.#asker, isolate: 0, serial: 0 };
    this.#asker = undefined;
    return (value) => this.#does({ kind: "reply", to, value });
  }

  #nextReading(): number {
    const { reads = [] } = this.#step, reading = reads[this.#read++];
    if (reading !== undefined) return reading;
    throw this.#differs(`${reads.length} readings of the clock`, "one more");
  }

  #draw(label: string): number {
    const { header: { seed } } = this.journal, name = `${this.#self.id}\0${label}`;
    return this.#streams.getOrInsertComputed(label, () => substream(seed, name))();
  }

  /** The address that a child was given then. */
  #nextChild(): ActorRef {
    const [kind, id = "", place = ""] = this.#step.did[this.#did]?.split(" ") ?? [];
    const [isolate, serial] = place.split("/").map(Number);
    if (kind !== "spawned" || isolate === undefined || serial === undefined) {
      throw this.#differs("no child", "a child");
    }
    const to = { id, isolate, serial };
    this.#does({ kind: "spawned", to });
    return to;
  }

  #wait(to: ActorRef, type: string, timeoutMs: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#questions.set(this.#asked++, (outcome) => {
        if (outcome.status === "answered") resolve(outcome.value);
        else reject(errorOf({ from: this.#self, to, type, timeoutMs }, outcome));
      });
    });
  }

  #context(): Context<Message> {
    return {
      self: this.#self,
      send: (to, value) => this.#does({ kind: "send", to, value }),
      ask: ((to: ActorRef, value: Message, { timeoutMs = 0 } = {}) => {
        this.#does({ kind: "ask", to, value });
        return this.#wait(to, value.type, timeoutMs);
      }) as AskCall,
      reply: (value) => this.#takeReply()(value),
      deferReply: () => this.#takeReply(),
      refuse: (value) => this.#does({ kind: "refuse", value }),
      spawn: <I, T extends Message>(spec: ActorSpec<I, T>, init: I, { id }: SpawnOptions) => {
        this.#does({ kind: "spawn", value: { made: spec.export, init, id } });
        return this.#nextChild() as ActorRef<Message> as ActorRef<T>;
      },
      watch: (to) => this.#does({ kind: "watch", to }),
      after: (delayMs, message, key) =>
        this.#does({ kind: "after", value: { delayMs, message, key } }),
      now: () => this.#nextReading(),
      random: (label) => this.#draw(label),
      doing: (text) => void (this.#doing = text),
      busy: async (run) => await run(),
      outside: <T>() => {
        this.#does({ kind: "outside" });
        return this.#wait(this.#self, "outside", Infinity) as Promise<T>;
      },
      // The sums are in the inbox.
      allReduce() {},
      expose: (read) => void (this.#expose = read),
      defer: (cleanup) => void this.#cleanups.push(cleanup),
      stop: (to?: ActorRef, options?: object) =>
        this.#does({ kind: "stop", ...to && { to }, ...options && { value: options } }),
    };
  }
}

/** Taken before a trap can be set. */
const realNow = performance.now.bind(performance);

function quote(text: string | undefined): string {
  return text === undefined ? "nothing more" : `"${text}"`;
}
