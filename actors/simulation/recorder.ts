/**
 * Records the steps of an isolate, simulated or real.
 *
 * @module
 */

import { posix } from "node:path";
import { keyOf } from "../runtime/actor.ts";
import {
  type Effect,
  messageName,
  type ObservedActor,
  type ObservedMessage,
  type Observer,
} from "../runtime/observer.ts";
import { Digest, digestOf } from "./digest.ts";

/** Relative imports in the text of a module, including those in comments, which are harmless. */
const IMPORTS = /(?:\bfrom|\bimport\s*\(?|\bnew URL\()\s*["'](\.{1,2}\/[^"']+)["']/g;

/**
 * Hashes modules and, recursively, all modules that they import by relative paths. Modules of a
 * registry change only with their version, so only the named ones are fetched.
 *
 * @param modules absolute URLs.
 * @returns the SHA-256 of each text in hexadecimal digits, by name. A file's name is its path relative
 * to the folder of the first module, because journals are read on other machines.
 * @throws {TypeError} (as a rejection) when one of `modules` cannot be read.
 */
export async function hashModules(
  modules: readonly string[],
): Promise<Readonly<Record<string, string>>> {
  const base = modules.find((module) => module.startsWith("file:"));
  const found = new Set(modules), names: (readonly [string, string])[] = [];
  // Imports are added to the set while it is read.
  for (const module of found) {
    const text = await readModule(module);
    if (text === undefined) {
      if (!modules.includes(module)) continue;
      throw new TypeError(`Cannot write a journal: ${module} must be a module that can be read`);
    }
    const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
    names.push([nameOf(module, base), new Uint8Array(hash).toHex()]);
    for (const imported of importsOf(module, text)) found.add(imported);
  }
  return Object.fromEntries(names.sort(([a], [b]) => a < b ? -1 : 1));
}

function importsOf(module: string, text: string): string[] {
  if (!module.startsWith("file:") || !/\.[cm]?[jt]sx?$/.test(module)) return [];
  return Array.from(text.matchAll(IMPORTS), ([, path]) => new URL(path!, module).href);
}

/** Returns the text of a module with `\n` line ends; undefined if it does not exist. */
async function readModule(module: string): Promise<string | undefined> {
  try {
    const response = await fetch(module);
    if (response.ok) return (await response.text()).replaceAll("\r\n", "\n");
    await response.body?.cancel();
  } catch {
    // A comment may name a module that does not exist.
  }
  return undefined;
}

/** Returns the name of a module: for a file, its path relative to the folder of another. */
function nameOf(module: string, base: string | undefined): string {
  if (base === undefined || !module.startsWith("file:")) return module;
  return posix.relative(posix.dirname(new URL(base).pathname), new URL(module).pathname);
}

/** One step in a trace; in a journal, a line. */
export interface StepRecord {
  /** Number of the step in its isolate. */
  readonly n: number;
  /** Number of the isolate; 0 created the system. */
  readonly isolate: number;
  /** Milliseconds of the isolate's clock at the start of the step. */
  readonly t: number;
  /** Id of the actor. */
  readonly actor: string;
  /** The message: id of its sender, and number of earlier messages from there to this actor. */
  readonly from: string;
  /** Type of the message. */
  readonly type: string;
  /** The actor's activity: `2F0`. */
  readonly name?: string;
  /** Present if the sender waits for an answer. */
  readonly isQuestion?: true;
  /** Present if a message of an actor has a type that work of the runtime also has: `finish`. */
  readonly isMessage?: true;
  /** Digest of the message. */
  readonly payload: string;
  /** Index of the chosen candidate; absent without a strategy. */
  readonly choice?: number;
  /** Number of candidates; absent without a strategy. */
  readonly arity?: number;
  /** Number of timers that fired before although a message could be handled; absent if none did. */
  readonly waits?: number;
  /** Injected faults of this step, as `kind target`. */
  readonly faults?: readonly string[];
  /** Effects of the actor, in order: `send stage-1 Activation 0123456789abcdef`. */
  readonly did: readonly string[];
  /** Values that it read from the clock. */
  readonly reads?: readonly number[];
  /** Digest of the exposed state after the step. */
  readonly state?: string;
  /** Running hash of this actor's steps: equal on every runtime if the actor received and sent the same
   * messages in the same order. */
  readonly chain: string;
  /** Running hash of the isolate's steps. */
  readonly hash: string;
}

/** Returns the work of the runtime that has a type; undefined if only messages have it. */
function workOf(type: string): "init" | "finish" | "answer" | undefined {
  if (type === "init" || type === "finish") return type;
  return type.startsWith("answer:") ? "answer" : undefined;
}

/** Returns the work of the runtime that a step did; undefined if it handled a message. */
export const workIn = ({ type, isMessage }: Pick<StepRecord, "type" | "isMessage">) =>
  isMessage ? undefined : workOf(type);

/** Returns the actor and the message of a step in short form. */
export const stepName = ({ actor, from, type }: Pick<StepRecord, "actor" | "from" | "type">) =>
  `${actor} < ${from} ${type}`;

/** The choice of a step; see {@linkcode StepRecord}. */
export interface Decision {
  choice: number;
  arity: number;
  waits: number;
  faults: string[];
}

/** Options of a {@linkcode Recorder}. */
interface RecorderOptions {
  /** Receives each step at its end. Without it, only the running hash is computed. */
  readonly sink?: ((step: StepRecord) => void) | undefined;
  /** Receives each message before it is handled. */
  readonly keep?: ((digest: string, message: unknown) => void) | undefined;
  /** The choice of the current step, if there is a strategy. */
  readonly decision?: Decision | undefined;
  /** True if the hash includes digests of messages. Default true. */
  readonly digests?: boolean | undefined;
  /** Called when the isolate closes. */
  readonly close?: () => void;
}

/** The parts of a step in a running hash; `from` is only the id of the sender. */
export interface HashedStep
  extends
    Required<Pick<StepRecord, "t" | "actor" | "from" | "type" | "name" | "choice" | "arity">> {
  readonly nth: number;
  readonly payload: readonly [number, number];
}

/** The choice of a step without a strategy. */
export const UNCHOSEN = -1;

/** Adds a step to the running hash of an isolate. */
export function addStep(hash: Digest, step: HashedStep): void {
  hash.number(step.t).word(step.choice).word(step.arity);
  addActorStep(hash, step);
}

/** Adds a step to the running hash of its actor, without time and choices. */
function addActorStep(hash: Digest, { actor, from, nth, type, name, payload }: HashedStep): void {
  hash.text(actor).text(from).word(nth).text(type).text(name).word(payload[0]).word(payload[1]);
}

const NO_PAYLOAD: readonly [number, number] = [0, 0];

/** Observes an isolate and records its steps. */
export class Recorder implements Observer {
  /** Number of recorded steps. */
  steps = 0;
  readonly #hash = new Digest();
  readonly #payload = new Digest();
  readonly #chains = new Map<string, Digest>();
  #now = 0;
  #envelope: ObservedMessage | undefined;
  #lanes = NO_PAYLOAD;
  /** By actor, because a waiting handler may continue within the step of another actor. */
  readonly #done = new Map<ObservedActor, { did: string[]; reads: number[] }>();

  /**
   * @param isolate number of the isolate.
   * @param options receivers of steps and messages.
   */
  constructor(private readonly isolate: number, private readonly options: RecorderOptions = {}) {}

  /** Running hash of the steps, 16 hexadecimal digits. */
  get hash(): string {
    return this.#hash.toString();
  }

  begins(_actor: ObservedActor, envelope: ObservedMessage, now: number): void {
    const { digests = true, keep } = this.options;
    this.#envelope = envelope;
    this.#now = now;
    this.#lanes = digests ? this.#payload.reset().value(envelope.message).lanes() : NO_PAYLOAD;
    keep?.(this.#payload.toString(), envelope.message);
  }

  did(actor: ObservedActor, effect: Effect): void {
    if (!this.options.sink) return;
    const done = this.#done.getOrInsertComputed(actor, () => ({ did: [], reads: [] }));
    if (effect.kind === "now") done.reads.push(effect.value as number);
    else done.did.push(describeEffect(effect));
  }

  ends(actor: ObservedActor): void {
    // The last step of an isolate is reported before its loop reaches its end.
    if (!this.#envelope) return;
    const { from: { id: from }, nth, message: { type } } = this.#envelope;
    const { ref: { id }, activity: name } = actor, t = this.#now, payload = this.#lanes;
    const { choice, arity } = this.options.decision ?? { choice: UNCHOSEN, arity: 0 };
    const step: HashedStep = { t, actor: id, from, nth, type, name, payload, choice, arity };
    addStep(this.#hash, step);
    if (this.options.sink) this.options.sink(this.#record(actor, step));
    this.steps++;
    this.#envelope = undefined;
  }

  closes(): void {
    this.options.close?.();
  }

  #record(actor: ObservedActor, step: HashedStep): StepRecord {
    const { decision } = this.options, envelope = this.#envelope!;
    const { t, type, name, choice, arity } = step;
    const { did, reads } = this.#done.get(actor) ?? { did: [], reads: [] };
    this.#done.delete(actor);
    const chain = this.#chains.getOrInsertComputed(keyOf(actor.ref), () => new Digest());
    addActorStep(chain, step);
    return {
      n: this.steps,
      isolate: this.isolate,
      t,
      actor: step.actor,
      from: messageName(envelope.from, envelope.nth),
      type,
      ...(name === "" ? {} : { name }),
      ...(envelope.replyTo ? { isQuestion: true } : {}),
      ...(!envelope.run && workOf(type) ? { isMessage: true } : {}),
      payload: this.#payload.toString(),
      ...(decision ? { choice, arity } : {}),
      ...(decision && decision.waits > 0 ? { waits: decision.waits } : {}),
      ...(decision && decision.faults.length > 0 ? { faults: [...decision.faults] } : {}),
      did,
      ...(reads.length > 0 ? { reads } : {}),
      ...(actor.expose ? { state: digestOf(actor.expose()) } : {}),
      chain: chain.toString(),
      hash: this.hash,
    };
  }
}

/** Formats an effect of an actor; equal effects have equal lines. */
export function describeEffect({ kind, to, value }: Effect): string {
  const type = (value as { type?: unknown } | undefined)?.type;
  return [
    kind,
    ...to ? [to.id] : [],
    ...kind === "spawned" ? [`${to!.isolate}/${to!.serial}`] : [],
    ...typeof type === "string" ? [type] : [],
    ...value !== undefined ? [digestOf(value)] : [],
  ].join(" ");
}
