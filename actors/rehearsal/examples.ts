/**
 * What `troupe explore` can explore: the rehearsal of any schedule, or a module of one's own.
 *
 * @module
 */

import { pathToFileURL } from "node:url";
import { scheduleNames } from "../../schedules/mod.ts";
import { TRAINING_ACTORS } from "../run/run_journal.ts";
import type { Scenario } from "../simulation/mod.ts";
import { prepareRehearsal, type RehearsalPlan } from "./plan.ts";
import { rehearsal } from "./rehearsal.ts";

/** A scenario, what it is configured with, and smaller configurations to look for a failure in. */
export interface Example {
  readonly scenario: Scenario<unknown, unknown>;
  readonly configuration: unknown;
  readonly smaller?: (configuration: unknown) => readonly unknown[];
  /** Absolute URLs of the modules that it is made of. */
  readonly modules: readonly string[];
  /** Ids of the actors that may crash. Default: all. */
  readonly mayHit?: readonly string[];
}

/**
 * Finds an example: the name of a schedule, which is rehearsed with 4 stages, 8 micro-batches and 2
 * replicas, or the path of a module that exports `scenario`, and may export `configuration`.
 *
 * @param mayLose whether a lost worker is an end like any other, as faults are injected.
 * @throws {RangeError} when there is no such schedule, or it cannot be rehearsed.
 * @throws {TypeError} when the module cannot be read, or exports no scenario.
 */
export async function findExample(name: string, mayLose: boolean): Promise<Example> {
  if (!name.includes("/") && !name.endsWith(".ts")) return rehearsalOf(name, mayLose);
  return await loadExample(name);
}

/** Loads the scenario of a module. @throws {TypeError} when there is none. */
export async function loadExample(path: string): Promise<Example> {
  const module = URL.canParse(path) ? path : pathToFileURL(path).href;
  const { scenario, configuration } = await import(module).catch((error: Error) => {
    throw new TypeError(
      `Cannot explore ${path}: it must be a module that can be loaded; ${error.message}`,
    );
  });
  if (typeof scenario === "function") {
    return { scenario: scenario as Example["scenario"], configuration, modules: [module] };
  }
  throw new TypeError(
    `Cannot explore ${path}: it must export a function "scenario", received ${typeof scenario}`,
  );
}

/** The rehearsal of a schedule. @throws {RangeError} when there is none, or it cannot be. */
export function rehearsalOf(schedule: string, mayLose: boolean): Example {
  if (!scheduleNames().includes(schedule)) {
    throw new RangeError(
      `Cannot explore "${schedule}": it must be the path of a module or one of ${
        scheduleNames().join(", ")
      }`,
    );
  }
  const configuration: RehearsalPlan = { schedule, mayLose };
  const { options: { schedule: made, replicas } } = prepareRehearsal(configuration);
  return {
    // Nobody outlives the supervisor, so its crash shows nothing.
    mayHit: Array.from({ length: replicas * made.workers }, (_, worker) => `worker-${worker}`),
    scenario: rehearsal as Scenario<unknown, unknown>,
    configuration,
    smaller: (plan) => smallerPlans(plan as RehearsalPlan),
    modules: [import.meta.url, ...TRAINING_ACTORS],
  };
}

/** Workers, micro-batches and replicas of smaller plans, the smallest first. */
const SMALLER = [[2, 2, 1], [2, 4, 1], [2, 4, 2], [4, 4, 2]] as const;

/** Smaller plans to look for the same failure in. */
export function smallerPlans(plan: RehearsalPlan): RehearsalPlan[] {
  const sizes = SMALLER.map(([workers, microBatches, replicas]) => ({
    ...plan,
    workers,
    microBatches,
    replicas,
    steps: 1,
  }));
  return sizes.filter((one) => sizeOf(one) < sizeOf(plan) && canRehearse(one));
}

function sizeOf({ workers = 4, microBatches = 8, replicas = 2, steps = 1 }: RehearsalPlan): number {
  return workers * microBatches * replicas * steps;
}

/** Some schedules need more workers or micro-batches. */
function canRehearse(plan: RehearsalPlan): boolean {
  try {
    prepareRehearsal(plan);
    return true;
  } catch {
    return false;
  }
}
