/**
 * The recorder: writes down each step of an isolate, simulated or real.
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

/** Relative imports of a module's text, those in comments included, which do no harm. */
const IMPORTS = /(?:\bfrom|\bimport\s*\(?|\bnew URL\()\s*["'](\.{1,2}\/[^"']+)["']/g;

/**
 * Hashes modules and all that they import by relative paths, and so on. Modules on this machine may
 * change at any time; those of a registry only with its version, so of them none is fetched but those
 * that are named.
 *
 * @param modules absolute URLs.
 * @returns by name the SHA-256 of each text, in hexadecimal digits. A file's name is its path from
 * the folder of the first module: journals go from machine to machine.
 * @throws {TypeError} (as a rejection) when one of `modules` cannot be read.
 */
export async function hashModules(
  modules: readonly string[],
): Promise<Readonly<Record<string, string>>> {
  const base = modules.find((module) => module.startsWith("file:"));
  const hashes = new Map<string, string>();
  let found = [...new Set(modules)];
  for (const named = new Set(modules); found.length > 0;) {
    const read = await Promise.all(found.map(async (module) => {
      const text = await readModule(module);
      if (text === undefined && named.has(module)) {
        throw new TypeError(`Cannot write a journal: ${module} must be a module that can be read`);
      }
      return { module, text };
    }));
    const next = new Set<string>();
    for (const { module, text } of read) {
      if (text === undefined) continue;
      const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
      hashes.set(module, new Uint8Array(hash).toHex());
      for (const imported of importsOf(module, text)) next.add(imported);
    }
    found = [...next].filter((module) => !hashes.has(module));
  }
  const names = [...hashes].map(([module, hash]) => [nameOf(module, base), hash] as const);
  return Object.fromEntries(names.sort(([a], [b]) => a < b ? -1 : 1));
}

function importsOf(module: string, text: string): string[] {
  if (!module.startsWith("file:") || !/\.[cm]?[jt]sx?$/.test(module)) return [];
  return Array.from(text.matchAll(IMPORTS), ([, path]) => new URL(path!, module).href);
}

/** A module's text; undefined when there is none. Line ends count alike on all systems. */
async function readModule(module: string): Promise<string | undefined> {
  try {
    const response = await fetch(module);
    if (response.ok) return (await response.text()).replaceAll("\r\n", "\n");
    await response.body?.cancel();
  } catch {
    // A comment may speak of a module that is nowhere.
  }
  return undefined;
}

/** A module's name: of a file its path from the folder of another. */
function nameOf(module: string, base: string | undefined): string {
  if (base === undefined || !module.startsWith("file:")) return module;
  return posix.relative(posix.dirname(new URL(base).pathname), new URL(module).pathname);
}

/** One step, as it stands in a trace and, as a line, in a journal. */
export interface StepRecord {
  /** Counts the steps of the isolate. */
  readonly n: number;
  /** Number of the isolate; 0 is the one that made the system. */
  readonly isolate: number;
  /** Milliseconds of the isolate's clock when the step began. */
  readonly t: number;
  /** Id of the actor. */
  readonly actor: string;
  /** The message: id of its sender, and how many came from there to this actor before. */
  readonly from: string;
  /** Type of the message. */
  readonly type: string;
  /** What the actor said it does: `2F0`. */
  readonly name?: string;
  /** The sender waits for an answer. */
  readonly isQuestion?: true;
  /** Digest of the message. */
  readonly payload: string;
  /** Index of the candidate that was chosen, and among how many; absent where nobody chooses. */
  readonly choice?: number;
  /** See `choice`. */
  readonly arity?: number;
  /** Timers that fired before, though something could be handled; absent where none did. */
  readonly waits?: number;
  /** Faults that were injected in this step, as `kind target`. */
  readonly faults?: readonly string[];
  /** What the actor did, in order: `send stage-1 Activation 0123456789abcdef`. */
  readonly did: readonly string[];
  /** What it read from the clock. */
  readonly reads?: readonly number[];
  /** Digest of the state that the actor exposes, after the step. */
  readonly state?: string;
  /** Running hash of this actor's steps: the same on every runtime if the actor got and sent the
   * same, in the same order. */
  readonly chain: string;
  /** Running hash of the isolate's steps. */
  readonly hash: string;
}

/** A step as a few words: who handles which message. */
export const stepName = ({ actor, from, type }: Pick<StepRecord, "actor" | "from" | "type">) =>
  `${actor} < ${from} ${type}`;

/** How a step was chosen; see {@linkcode StepRecord}. */
export interface Decision {
  choice: number;
  arity: number;
  waits: number;
  faults: string[];
}

/** What a recorder keeps. */
interface RecorderOptions {
  /** Gets each step when it is over. Without it only the running hash is kept. */
  readonly sink?: ((step: StepRecord) => void) | undefined;
  /** Gets each message before it is handled. */
  readonly keep?: ((digest: string, message: unknown) => void) | undefined;
  /** How the step was chosen, if somebody chooses. */
  readonly decision?: Decision | undefined;
  /** Whether messages have digests. Default true; without, the hash says less and costs less. */
  readonly digests?: boolean | undefined;
}

/** The parts of a step that count in a running hash; `from` is the id of the sender alone. */
export interface HashedStep
  extends
    Required<Pick<StepRecord, "t" | "actor" | "from" | "type" | "name" | "choice" | "arity">> {
  readonly nth: number;
  readonly payload: readonly [number, number];
}

/** Stands for the choice where nobody chooses. */
export const UNCHOSEN = -1;

/** Adds a step to the running hash of an isolate. */
export function addStep(hash: Digest, step: HashedStep): void {
  hash.number(step.t).word(step.choice).word(step.arity);
  addDeed(hash, step);
}

/** Adds a step to the running hash of its actor, which knows neither time nor others. */
function addDeed(hash: Digest, { actor, from, nth, type, name, payload }: HashedStep): void {
  hash.text(actor).text(from).word(nth).text(type).text(name).word(payload[0]).word(payload[1]);
}

const NO_PAYLOAD: readonly [number, number] = [0, 0];

/** Observes an isolate and writes down what it does. */
export class Recorder implements Observer {
  /** Steps recorded. */
  steps = 0;
  readonly #hash = new Digest();
  readonly #payload = new Digest();
  readonly #chains = new Map<string, Digest>();
  #now = 0;
  #envelope: ObservedMessage | undefined;
  #lanes = NO_PAYLOAD;
  /** By actor, as a handler that waits may go on within the step of another. */
  readonly #done = new Map<ObservedActor, { did: string[]; reads: number[] }>();

  /**
   * @param isolate number of the isolate.
   * @param options what it keeps.
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
    // The last step of an isolate is told before its loop comes to it.
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

  closes(): void {}

  #record(actor: ObservedActor, step: HashedStep): StepRecord {
    const { decision } = this.options, envelope = this.#envelope!;
    const { t, type, name, choice, arity } = step;
    const { did, reads } = this.#done.get(actor) ?? { did: [], reads: [] };
    this.#done.delete(actor);
    const chain = this.#chains.getOrInsertComputed(keyOf(actor.ref), () => new Digest());
    addDeed(chain, step);
    return {
      n: this.steps,
      isolate: this.isolate,
      t,
      actor: step.actor,
      from: messageName(envelope.from, envelope.nth),
      type,
      ...(name === "" ? {} : { name }),
      ...(envelope.replyTo ? { isQuestion: true } : {}),
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

/** What an actor did, as a line of words that is the same whenever it does the same. */
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
