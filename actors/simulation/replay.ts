/**
 * Strict replay of a recorded run.
 *
 * @module
 */

import type { Candidate } from "../runtime/mod.ts";
import { type Journal, readJournal } from "./journal.ts";
import { packageVersion } from "./journal_writer.ts";
import { hashModules, stepName, type StepRecord, workIn } from "./recorder.ts";
import type { Run, Scenario, SimulateOptions } from "./run.ts";
import { simulate } from "./simulate.ts";
import { describeCandidate, ReplayError, replayOf, type Strategy, WAIT } from "./strategies.ts";

/** Options of {@linkcode replayJournal}. */
export interface ReplayOptions<C = undefined>
  extends Omit<SimulateOptions<C>, "seed" | "strategy" | "deviations" | "onMessage"> {
  /** Absolute URLs of the actors' modules, which must be unchanged since the recording. */
  readonly actors?: readonly string[];
  /** True if another package version and changed modules are accepted, up to the first different step.
   * Default false. */
  readonly mayHaveChanged?: boolean;
}

/**
 * Runs a scenario in the exact order of a journal. The journal of a simulation is replayed choice by
 * choice. The journal of real workers, whose isolates were independent, is replayed actor by actor:
 * each actor receives its messages in the recorded order, and must have the recorded running hash. If
 * the program was killed, the replay ends with the journal.
 *
 * @param journal a journal or its path.
 * @param scenario the recorded scenario: the same actors and external messages.
 * @param options configuration of the scenario, and accepted changes.
 * @returns the run.
 * @throws {ReplayError} (as a rejection) at the first difference.
 *
 * @example
 * ```ts
 * import { random, ReplayError, replayJournal, type Scenario, simulate, writeJournal } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const module = "data:text/javascript,export const mute = () => ({ Note() {} })";
 * type Note = { type: "Note"; n: number };
 * const scenario = (notes: number[]): Scenario => async ({ system, idle }) => {
 *   for (const id of ["a", "b", "c"]) {
 *     const mute = system.spawn<undefined, Note>({ module, export: "mute" }, undefined, { id });
 *     for (const n of notes) system.send(mute, { type: "Note", n });
 *   }
 *   await idle();
 * };
 * const path = await Deno.makeTempFile();
 * const { onStep, close } = await writeJournal({ path, seed: 7, strategy: "random" });
 * const run = await simulate({ seed: 7, strategy: random(), onStep }, scenario([1, 2]));
 * close();
 * assert.equal((await replayJournal(path, scenario([1, 2]))).hash, run.hash);
 * await assert.rejects(replayJournal(path, scenario([1, 3])), ReplayError);
 * await Deno.remove(path);
 * ```
 */
export async function replayJournal<T, C = undefined>(
  journal: Journal | string,
  scenario: Scenario<T, C>,
  options: ReplayOptions<C> = {},
): Promise<Run<T>> {
  const read = typeof journal === "string" ? await readJournal(journal) : journal;
  const change = !options.mayHaveChanged && await changeSince(read, options.actors ?? []);
  if (change) throw change;
  const { seed } = read.header;
  const isChosen = read.steps.every(({ choice }) => choice !== undefined);
  let mismatch: ReplayError | undefined;
  const guide = isChosen
    ? choiceByChoice(read.steps, (error) => void (mismatch = error))
    : actorByActor(read.steps);
  const onStep = (step: StepRecord) => {
    options.onStep?.(step);
    mismatch ??= guide.check(step);
    if (mismatch) throw mismatch;
  };
  const run = await simulate<T, C>(
    { ...options, seed, strategy: guide.strategy, onStep } as SimulateOptions<C>,
    scenario,
  );
  const why = run.failure ? `: ${run.failure.message}` : "";
  mismatch ??= guide.rest(`the end of the run${why}`);
  if (mismatch) throw mismatch;
  return run;
}

/** Returns the first difference of the package version and modules from the journal. */
async function changeSince(
  { header: { package: version, actors: then } }: Journal,
  actors: readonly string[],
): Promise<ReplayError | undefined> {
  if (version !== packageVersion) {
    return new ReplayError(0, `package version ${version}`, `version ${packageVersion}`);
  }
  if (actors.length === 0) return undefined;
  const now = await hashModules(actors);
  for (const name of new Set([...Object.keys(then), ...Object.keys(now)])) {
    const [recorded = "none", hash = "none"] = [then[name], now[name]];
    if (recorded === hash) continue;
    return new ReplayError(0, `module ${name} with hash ${recorded}`, `hash ${hash}`);
  }
}

/** Replays a journal. */
interface Guide {
  readonly strategy: Strategy;
  /** Returns the difference of a step from the recorded one, if any. */
  check(step: StepRecord): ReplayError | undefined;
  /** Returns the difference if the run ended too early. */
  rest(end: string): ReplayError | undefined;
}

/** Parts of a step that are equal on every runtime. */
const PARTS = ["from", "type", "name", "isQuestion", "payload", "state", "chain"] as const;

/** Returns the first difference of a step from the recorded one, in its parts or effects. */
function differs(
  step: StepRecord,
  recorded: StepRecord,
  parts: readonly (keyof StepRecord)[],
): ReplayError | undefined {
  const who = `(${stepName(step)})`;
  const part = parts.find((one) => step[one] !== recorded[one]);
  if (part) return new ReplayError(step.n, `${part} ${recorded[part]} ${who}`, `${step[part]}`);
  const length = Math.max(step.did.length, recorded.did.length);
  for (let index = 0; index < length; index++) {
    const [expected, received] = [recorded, step].map(({ did }) => did[index] ?? "nothing more");
    if (expected !== received) {
      return new ReplayError(step.n, `"${expected}" ${who}`, `"${received}"`);
    }
  }
}

/** Removes the isolates of spawned actors from a step, because they differ between runtimes. */
function placeless(step: StepRecord): StepRecord {
  const did = step.did.map((effect) => effect.replace(/^(spawned .*) \d+\/\d+$/s, "$1"));
  return { ...step, did };
}

/** Replays the journal of a simulation, which records the chosen candidates. */
function choiceByChoice(
  steps: readonly StepRecord[],
  onMismatch: (error: ReplayError) => void,
): Guide {
  const inner = replayOf(steps);
  let done = 0;
  return {
    strategy: {
      ...inner,
      choose(candidates, step, state) {
        try {
          return inner.choose(candidates, step, state);
        } catch (error) {
          onMismatch(error as ReplayError);
          throw error;
        }
      },
    },
    check(step) {
      done = step.n + 1;
      const recorded = steps[step.n];
      // The recorded run may have been stopped before its end.
      return recorded && differs(step, recorded, ["actor", ...PARTS, "t", "hash"]);
    },
    rest(end) {
      const next = steps[done];
      return next && new ReplayError(done, stepName(next), end);
    },
  };
}

/** Replays the journal of real isolates, which records the order of each actor's messages. */
function actorByActor(steps: readonly StepRecord[]): Guide {
  // The runtime's messages to stopping actors are not part of the scenario.
  const played = steps.filter((step) => workIn(step) !== "finish");
  const queues = Map.groupBy(played, ({ actor }) => actor);
  // If the program was killed, each isolate recorded steps up to its last flush.
  const isWhole = steps.some(({ actor, type }) => actor === "system" && type === "finish");
  const begun = steps[0]?.t ?? 0;
  let runnable: readonly Candidate[] = [], n = 0;
  /** The recorded current step, and its number of clock readings so far. */
  let current: StepRecord | undefined, readings = 0;
  const nextOf = (actor: string) => queues.get(actor)?.[0];
  const isNext = ({ actor, from, nth, type }: Candidate) => {
    const next = nextOf(actor);
    return next?.from === `${from}#${nth}` && next.type === type;
  };
  return {
    strategy: {
      name: "replay",
      begin: () => true,
      choose(candidates) {
        runnable = candidates;
        // It comes after all messages of the actor, which may have this type too.
        const isFree = ({ actor, from, type }: Candidate) => {
          if (type !== "finish" || from !== actor) return false;
          const last = nextOf(actor);
          return !last || workIn(last) === "init";
        };
        const next = candidates.findIndex(isNext);
        const index = next < 0 ? candidates.findIndex(isFree) : next;
        current = next < 0 ? undefined : nextOf(candidates[next]!.actor);
        readings = 0;
        // The next message may come from a timer.
        return index < 0 ? WAIT : index;
      },
      // Readings of real clocks may be in messages, so they are repeated.
      reads: () => current?.reads?.[readings++],
      time: () => current && current.t - begun,
      endMs: steps.reduce((end, { t }) => Math.max(end, t - begun), 0),
    },
    check(step) {
      n = step.n + 1;
      if (workIn(step) === "finish") return undefined;
      const recorded = queues.get(step.actor)?.shift();
      if (!recorded) return new ReplayError(step.n, "nothing more", stepName(step));
      return differs(placeless(step), placeless(recorded), PARTS);
    },
    rest(end) {
      const next = queues.values().find((queue) => queue.length > 0)?.[0];
      if (!next || !isWhole) return undefined;
      return new ReplayError(n, stepName(next), end, runnable.map(describeCandidate));
    },
  };
}
