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

/** Where the actors of a suite live. */
export interface Place {
  readonly isolate: PlaceName;
  /** What a system needs to know to put actors there. */
  readonly transport?: Transport;
}

/** What a test gets. */
export interface Given {
  /** The system of this test, stopped after it. */
  readonly system: System;
  readonly isolate: PlaceName;
  /** What any other system must be made with. */
  readonly options: SystemOptions;
  /** Makes an actor in the place; its id is the name of its export if no other is given. */
  spawn<I, M extends Message>(spec: ActorSpec<I, M>, more?: More<I>): ActorRef<M>;
  /** All cases where actors are cheap and in the deep tier; elsewhere the first ones. */
  few<T>(cases: readonly T[], count?: number): readonly T[];
}

/** How an actor is made, where that is not as most are. */
export interface More<I> extends Partial<SpawnOptions> {
  readonly init?: I;
}

/** A test. */
export type Test = (given: Given) => Promise<void>;

/** Tests by what they say. */
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
