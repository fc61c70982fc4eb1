/**
 * A suite of tests that hold wherever actors live, registered for each place.
 *
 * @module
 */

import type {
  PlaceName,
  System,
  SystemOptions,
  Transport,
} from "../../../../actors/runtime/mod.ts";
import { withSystem } from "../harness.ts";

/** Where the actors of a suite live. */
export interface Place {
  readonly isolate: PlaceName;
  /** What a system needs to know to put actors there. */
  readonly transport?: Transport;
  /** Makes of a system one that puts actors there in another way. */
  readonly through?: (system: System) => System;
  /** Tests that cannot hold there, and why. */
  readonly except?: Readonly<Record<string, string>>;
}

/** What a test gets. */
export interface Given {
  /** A system of its own, stopped after it. */
  readonly system: System;
  readonly isolate: PlaceName;
  /** What any other system must be made with. */
  readonly options: SystemOptions;
}

/** A test. */
export type Test = (given: Given) => Promise<void>;

/** Tests by what they say. */
export type Suite = Readonly<Record<string, Test>>;

/** A test for each case. */
export function each<const T>(cases: readonly T[], make: (one: T) => [string, Test]): Suite {
  return Object.fromEntries(cases.map(make));
}

/** Registers a suite for a place. */
export function register(
  { isolate, transport, through = (system) => system, except = {} }: Place,
  suite: Suite,
): void {
  const options = transport ? { transport } : {};
  for (const [name, test] of Object.entries(suite)) {
    if (Object.hasOwn(except, name)) continue;
    Deno.test(
      `${isolate}: ${name}`,
      () => withSystem(options, (system) => test({ system: through(system), isolate, options })),
    );
  }
}
