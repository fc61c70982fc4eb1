/**
 * One actor alone, fed what it got in a recorded run.
 *
 * @module
 */

import type { ActorFactory, ActorSpec, Message } from "../../runtime/mod.ts";
import { type AnyFactory, type Init, ReplayedActor } from "./replayed_actor.ts";
import { type Journal, payloadOf, readJournal } from "../journal/journal.ts";
import type { StepRecord } from "../journal/recorder.ts";
import { HANG_MS } from "../simulated_run.ts";
import { setTraps } from "../traps/traps.ts";

/** Which actor is replayed, and how. */
export interface InboxOptions {
  /** Id of the actor. Default: the only one in the journal that the factory made. */
  readonly id?: string;
  /** Modules that may use clocks and chance: see {@linkcode SimulateOptions.trusted}. */
  readonly trusted?: readonly string[];
  /** Called after each step that came out as recorded. */
  readonly onStep?: (step: StepRecord) => void;
  /** Real milliseconds after which a handler counts as hanging. Default {@linkcode HANG_MS}. */
  readonly hangMs?: number;
}

/** What came out as recorded. */
export interface InboxReplay {
  /** Id of the actor. */
  readonly actor: string;
  /** Messages handled. */
  readonly steps: number;
  /** Messages, answers and other doings compared. */
  readonly compared: number;
  /** States compared; 0 when the actor exposes none. */
  readonly states: number;
}

/**
 * Makes an actor anew and feeds it the messages, clock readings and random numbers that it had in
 * a recorded run. After each message all that it did, its name for the step and the state it
 * exposes must be what they were: a recorded run is a test of that actor, alone and in any later
 * version that keeps the protocol.
 *
 * @param actor the module and export of its factory, or the factory itself.
 * @param journal a journal with payloads, or its path.
 * @param options which actor, if there are several.
 * @returns how much was compared.
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
  const factory = typeof actor === "function" ? actor : await load(actor);
  const id = options.id ?? findActor(read, typeof actor === "function" ? actor.name : actor.export);
  const steps = read.steps.filter((step) => step.actor === id), [first] = steps;
  if (first?.type !== "init") {
    throw new RangeError(
      `Cannot replay "${id}": the journal must hold its first message, received ` +
        (first ? `"${first.type}"` : "none of that actor"),
    );
  }
  const { trusted = [], hangMs = HANG_MS } = options, removeTraps = setTraps(trusted, () => {});
  try {
    const replayed = new ReplayedActor(read, factory as unknown as AnyFactory, first, hangMs);
    for (const step of steps) {
      await replayed.play(step);
      options.onStep?.(step);
    }
    const { compared, states } = replayed;
    return { actor: id, steps: steps.length, compared, states };
  } finally {
    removeTraps();
  }
}

async function load<I, M extends Message>(spec: ActorSpec<I, M>): Promise<ActorFactory<I, M>> {
  const exports: Record<string, unknown> = await import(spec.module);
  const factory = exports[spec.export];
  if (typeof factory === "function") return factory as ActorFactory<I, M>;
  throw new TypeError(
    `Cannot replay: ${spec.module} must export a function "${spec.export}", ` +
      `received ${typeof factory}`,
  );
}

/** The one actor that was made by the export of this name. */
function findActor(journal: Journal, name: string): string {
  const made = journal.steps.filter((step) =>
    step.type === "init" && (payloadOf(journal, step) as Init).made === name
  ).map(({ actor }) => actor);
  const ids = [...new Set(made)];
  if (ids.length === 1) return ids[0]!;
  throw new RangeError(
    `Cannot replay "${name}": id must be given when there is not exactly one such actor, ` +
      `the journal has ${ids.length === 0 ? "none" : ids.join(", ")}`,
  );
}
