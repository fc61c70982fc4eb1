/**
 * A recorded run made again, in strict mode.
 *
 * @module
 */

import type { Candidate } from "../runtime/mod.ts";
import { type Journal, readJournal } from "./journal.ts";
import { packageVersion } from "./journal_writer.ts";
import { hashModules, stepName, type StepRecord } from "./recorder.ts";
import type { Run, Scenario, SimulateOptions } from "./run.ts";
import { simulate } from "./simulate.ts";
import { describeCandidate, ReplayError, replayOf, type Strategy, WAIT } from "./strategies.ts";

/** How a journal is replayed. */
export interface ReplayOptions<C = undefined>
  extends Omit<SimulateOptions<C>, "seed" | "strategy" | "deviations" | "onMessage"> {
  /** Absolute URLs of the modules of the actors: they must be the ones that were recorded. */
  readonly actors?: readonly string[];
  /** Whether another package version and changed modules are let through, up to the first step
   * that differs. Default false. */
  readonly mayHaveChanged?: boolean;
}

/**
 * Plays a scenario in the very order of a journal. A journal of a simulation is followed choice by
 * choice; one of real workers, where each isolate went its own way, actor by actor: each gets its
 * messages in the order in which it got them then, and the running hash of each must be the same.
 * Where the program was killed, the run is followed as far as the journal goes.
 *
 * @param journal a journal or its path.
 * @param scenario what was recorded: the same actors and the same messages from outside.
 * @param options what the scenario is configured with, and what may have changed since.
 * @returns the run.
 * @throws {ReplayError} (as a rejection) at the first difference: the step, what was recorded, what
 * came, who was runnable.
 *
 * @example
 * ```ts
 * import {
 *   random,
 *   ReplayError,
 *   replayJournal,
 *   type Scenario,
 *   simulate,
 *   writeJournal,
 * } from "@troupe/troupe/testing";
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

/** The first thing that is not as it was when the journal was written. */
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

/** Leads a run along a journal. */
interface Guide {
  readonly strategy: Strategy;
  /** What is not as recorded in a step. */
  check(step: StepRecord): ReplayError | undefined;
  /** What was recorded and did not come, but `end`. */
  rest(end: string): ReplayError | undefined;
}

/** Parts that are the same on every runtime. */
const PARTS = ["from", "type", "name", "isQuestion", "payload", "state", "chain"] as const;

/** The first difference of a step from the recorded one: in one of its parts, or in what it did. */
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

/** A step without the isolates of the actors it spawned: those differ from runtime to runtime. */
function placeless(step: StepRecord): StepRecord {
  const did = step.did.map((deed) => deed.replace(/^(spawned .*) \d+\/\d+$/, "$1"));
  return { ...step, did };
}

/** The journal of a simulation says which candidate was chosen. */
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
      // The run may have been stopped before its end.
      return recorded && differs(step, recorded, ["actor", ...PARTS, "t", "hash"]);
    },
    rest(end) {
      const next = steps[done];
      return next && new ReplayError(done, stepName(next), end);
    },
  };
}

/** The journals of real isolates say in which order each actor got its messages. */
function actorByActor(steps: readonly StepRecord[]): Guide {
  // What the runtime does when actors stop is not part of the scenario.
  const played = steps.filter(({ type }) => type !== "finish");
  const queues = Map.groupBy(played, ({ actor }) => actor);
  // Of a program that was killed, each isolate wrote down what it did up to its own last flush.
  const isWhole = steps.some(({ actor, type }) => actor === "system" && type === "finish");
  let runnable: readonly Candidate[] = [], n = 0;
  /** The step at work as it was recorded, and how often it has read the clock. */
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
        const isFree = ({ type }: Candidate) => type === "finish";
        const next = candidates.findIndex(isNext);
        const index = next < 0 ? candidates.findIndex(isFree) : next;
        current = next < 0 ? undefined : nextOf(candidates[next]!.actor);
        readings = 0;
        // A timer of then may be what comes next.
        return index < 0 ? WAIT : index;
      },
      // Real clocks went on as they did, and what they said may be in messages.
      reads: () => current?.reads?.[readings++],
    },
    check(step) {
      n = step.n + 1;
      if (step.type === "finish") return undefined;
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
