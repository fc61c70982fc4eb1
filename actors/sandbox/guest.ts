/**
 * The module that runs in a sandbox: the actor of a package, driven by the frames of its host. Package
 * code can change all of this; the checks are in the host.
 *
 * @module
 */

import { setImmediate } from "node:timers";
import { handlersOf } from "../runtime/spawning.ts";
import { describeFailure, type Failure } from "../runtime/failure.ts";
import { Outbox, receiveFrames } from "../transports/stream.ts";
import type { ActorRef, Message } from "../runtime/types.ts";
import { substream } from "../runtime/world.ts";
import { checkDefinition, openHandlers, type PackageContext, REF } from "./define.ts";

/** The time and the seed of random numbers during a message. */
interface World {
  readonly now: number;
  readonly seed: number;
}

/** A frame of the host. The guest answers each with one frame. */
export type HostFrame =
  | { readonly kind: "hello" }
  /** Import the package, and describe its actor as JSON. */
  | { readonly kind: "load"; readonly from: string; readonly export: string }
  | { readonly kind: "make"; readonly self: unknown; readonly init: unknown } & World
  | { readonly kind: "message"; readonly number: number; readonly message: Message } & World
  | { readonly kind: "answer"; readonly ask: number; readonly answer: Answer };

/** The end of a question. */
export type Answer = { readonly value: unknown } | { readonly error: ErrorFields };

type ErrorFields = Pick<Failure["error"], "name" | "message">;

/** A call of the package's actor. Addresses are numbers of the host's table; a question is numbered by
 * the guest, a message by the host. The host trusts none of it. */
export interface Call {
  readonly call: "send" | "ask" | "reply" | "after" | "fail";
  readonly to?: unknown;
  readonly message?: unknown;
  readonly ask?: unknown;
  readonly timeoutMs?: unknown;
  readonly number?: unknown;
  readonly value?: unknown;
  readonly delayMs?: unknown;
  readonly key?: unknown;
  readonly error?: unknown;
}

/** The guest's answer to a frame: the calls of its actor. */
export interface Turn {
  readonly calls: readonly Call[];
  /** The message is handled; else the actor waits for an answer. */
  readonly isOver: boolean;
  /** The message will be answered later. */
  readonly isDeferred: boolean;
  /** Reason why the actor refuses the message. */
  readonly refusal: string | undefined;
}

type Waiting = Pick<PromiseWithResolvers<unknown>, "resolve" | "reject">;

/** The actor of a package. */
class Guest {
  /** Makes the actor of the package that was loaded. */
  #make!: (self: ActorRef<Message>, init: unknown) => Promise<void>;
  #handlers!: ReturnType<typeof openHandlers>;
  #world: World = { now: 0, seed: 0 };
  #streams = new Map<string, () => number>();
  /** Number of the message that is handled. */
  #number = -1;
  #calls: Call[] = [];
  readonly #asks = new Map<number, Waiting>();
  #asked = 0;
  #isOver = true;
  #isDeferred = false;
  /** The host waits for a frame. */
  #maySpeak = false;

  constructor(private readonly send: (frame: unknown) => void) {}

  receive(frame: HostFrame): void {
    this.#maySpeak = true;
    switch (frame.kind) {
      case "hello":
        return this.#speak({});
      case "load":
        return void this.#load(frame.from, frame.export);
      case "make":
        return this.#begin(frame, () => this.#make(frame.self as ActorRef<Message>, frame.init));
      case "message": {
        const refusal = this.#handlers.check(frame.message);
        if (refusal !== undefined) return this.#end(refusal);
        this.#number = frame.number;
        return this.#begin(frame, () => this.#handlers.handle(frame.message));
      }
      case "answer": {
        const waiting = this.#asks.get(frame.ask)!, { answer } = frame;
        this.#asks.delete(frame.ask);
        if ("value" in answer) waiting.resolve(answer.value);
        else waiting.reject(Object.assign(new Error(answer.error.message), answer.error));
        return this.#pause();
      }
    }
  }

  async #load(from: string, name: string): Promise<void> {
    const cannot = `Cannot use "${name}" of ${from}`;
    try {
      const exports = await import(from), definition = exports[name];
      checkDefinition(cannot, definition, Object.keys(exports));
      this.#make = async (self, init) => {
        const made = await definition.create(this.#context(self), init);
        this.#handlers = openHandlers(cannot, definition, handlersOf(definition.name, name, made));
      };
      const { name: called, protocol, messages, permissions } = definition;
      this.#speak(JSON.stringify({ name: called, protocol, messages, permissions }));
    } catch (error) {
      this.#speak(describeFailure("", "init", error).error);
    }
  }

  #begin(world: World, run: () => unknown): void {
    this.#world = world;
    this.#streams.clear();
    this.#isOver = this.#isDeferred = false;
    (async () => await run())().catch((error) => {
      this.#calls.push({ call: "fail", error: describeFailure("", "throw", error).error });
      this.#asks.clear();
    }).finally(() => {
      this.#isOver = true;
      if (this.#asks.size === 0) this.#end();
    });
  }

  /** Returns control to the host when the actor only waits for answers. */
  #pause(): void {
    setImmediate(() => {
      if (this.#asks.size > 0 || this.#isOver) this.#end();
    });
  }

  #end(refusal?: string): void {
    const calls = this.#calls, isOver = this.#isOver && this.#asks.size === 0;
    if (!this.#maySpeak) return;
    this.#calls = [];
    this.#speak({ calls, isOver, isDeferred: this.#isDeferred, refusal } satisfies Turn);
  }

  #speak(frame: unknown): void {
    this.#maySpeak = false;
    this.send(frame);
  }

  #call(call: Call): void {
    if (this.#isOver && this.#asks.size === 0) {
      throw new TypeError(`Cannot ${call.call}: the actor must be handling a message`);
    }
    // A copy: the actor may change the message before the host gets it.
    this.#calls.push(structuredClone(call));
  }

  #context(self: ActorRef<Message>): PackageContext<Message> {
    const call = (call: Call) => this.#call(call);
    const reply = (number: number, value: unknown) => call({ call: "reply", number, value });
    const context = {
      self,
      send(to: unknown, message: Message) {
        assertAddress("send", to);
        call({ call: "send", to, message });
      },
      ask: (to: unknown, message: Message, { timeoutMs }: { timeoutMs?: number } = {}) => {
        assertAddress("ask", to);
        const ask = this.#asked++;
        call({ call: "ask", to, message, ask, timeoutMs });
        const { promise, ...waiting } = Promise.withResolvers<unknown>();
        this.#asks.set(ask, waiting);
        this.#pause();
        return promise;
      },
      reply: (value: unknown) => reply(this.#number, value),
      deferReply: () => {
        const number = this.#number;
        this.#isDeferred = true;
        return (value: unknown) => {
          reply(number, value);
          if (number === this.#number) this.#isDeferred = false;
        };
      },
      after: (delayMs: number, message: Message, key?: string) =>
        call({ call: "after", delayMs, message, key }),
      now: () => this.#world.now,
      random: (label: string) => {
        const open = () => substream(this.#world.seed, label);
        return this.#streams.getOrInsertComputed(label, open)();
      },
    };
    return context as PackageContext<Message>;
  }
}

function assertAddress(what: string, to: unknown): void {
  if (Object.hasOwn(Object(to), REF)) return;
  throw new TypeError(`Cannot ${what}: it must be given the address of an actor`);
}

/** Functions of `console` that print to the standard output. */
const PRINTING = [
  ...["log", "info", "debug", "dir", "dirxml", "table", "count", "group", "groupCollapsed"],
  ...["timeEnd", "timeLog", "clear"],
];

async function serveProcess(): Promise<never> {
  // Printed text must not mix with the frames.
  const print = console.error.bind(console);
  Object.assign(globalThis.console, Object.fromEntries(PRINTING.map((name) => [name, print])));
  // Ctrl-C and the end of a terminal reach all processes, but only the program reacts.
  Deno.addSignalListener("SIGINT", () => {});
  if (Deno.build.os !== "windows") Deno.addSignalListener("SIGHUP", () => {});
  const outbox = new Outbox(), { stdout, stdin } = Deno;
  outbox.attach(stdout);
  const guest = new Guest((frame) => outbox.post(frame));
  await receiveFrames(stdin, (frame) => guest.receive(frame as HostFrame));
  Deno.exit(0);
}

function serveWorker(): void {
  const scope = globalThis as unknown as Pick<Worker, "postMessage" | "onmessage">;
  const guest = new Guest((frame) => scope.postMessage(frame));
  scope.onmessage = ({ data }) => guest.receive(data);
}

if ("WorkerGlobalScope" in globalThis) serveWorker();
else await serveProcess();
