/**
 * A suite of tests that hold wherever actors live, registered for each place.
 *
 * @module
 */

import type {
  ActorRef,
  ActorSpec,
  Message,
  PlaceName,
  SpawnOptions,
  System,
  SystemOptions,
  Transport,
} from "../../../../actors/runtime/mod.ts";
import { IS_DEEP } from "../../../depth.ts";
import { withSystem } from "../harness.ts";

/** The isolate of the actors of a suite. */
export interface Place {
  readonly isolate: PlaceName;
  /** The transport of that isolate. Default: a built-in one. */
  readonly transport?: Transport;
}

/** Arguments of a test. */
export interface Given {
  /** The system of this test, stopped after it. */
  readonly system: System;
  readonly isolate: PlaceName;
  /** Options for any other system. */
  readonly options: SystemOptions;
  /** Spawns an actor in the place. Default id: the name of its export. */
  spawn<I, M extends Message>(spec: ActorSpec<I, M>, more?: More<I>): ActorRef<M>;
  /** Returns all cases if actors are cheap or in the deep tier, and otherwise the first `count`. */
  few<T>(cases: readonly T[], count?: number): readonly T[];
}

/** Options of a spawn that differ from the defaults. */
export interface More<I> extends Partial<SpawnOptions> {
  readonly init?: I;
}

/** A test. */
export type Test = (given: Given) => Promise<void>;

/** Tests by title. */
export type Suite = Readonly<Record<string, Test>>;

/** Registers a suite for a place. */
export function register(place: Place, suite: Suite): void {
  const { isolate, transport } = place;
  const options = transport ? { transport } : {};
  for (const [name, test] of Object.entries(suite)) {
    Deno.test(
      `${isolate}: ${name}`,
      () => withSystem(options, (system) => test(givenOf(system, isolate, options))),
    );
  }
}

function givenOf(system: System, isolate: PlaceName, options: SystemOptions): Given {
  return {
    system,
    isolate,
    options,
    spawn<I, M extends Message>(spec: ActorSpec<I, M>, { init, ...more }: More<I> = {}) {
      const options = { id: spec.export, isolate, ...more };
      return system.spawn<unknown, M>(spec as ActorSpec<unknown, M>, init, options);
    },
    few: (cases, count = 1) => isolate === "local" || IS_DEEP ? cases : cases.slice(0, count),
  };
}
