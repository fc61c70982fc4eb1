/**
 * What a scenario sees of the world it runs in.
 *
 * @module
 */

import type { System } from "../runtime/mod.ts";
import type { EventuallyOptions } from "./checks/eventually.ts";
import type { SimulatedDisk } from "./disk/simulated_disk.ts";
import type { Check } from "./view.ts";

/** How long {@linkcode World.settle} goes on. */
export interface Settling {
  /** Most messages. Default: any number. */
  readonly steps?: number;
  /** Virtual milliseconds. Default: until no timer runs. */
  readonly ms?: number;
}

/**
 * The world of a scenario. Time stands still while the scenario's own code runs: the actors go on
 * when it waits for something of this world.
 *
 * @typeParam C what the scenario is configured with.
 */
export interface World<C = undefined> {
  /** The system; it lives under a virtual clock, and all its actors in one isolate. */
  readonly system: System;
  /** See {@linkcode SimulateOptions.configuration}. */
  readonly configuration: C;
  /**
   * Handles what waits in plain order, whatever the strategy: sets the stage.
   *
   * @param until most messages, or how long that takes. Default: until nobody can do anything.
   */
  settle(until?: number | Settling): Promise<void>;
  /** Waits until nobody can do anything and no timer runs. Where timers start again and again, use
   * {@linkcode World.advance}. */
  idle(): Promise<void>;
  /**
   * Lets virtual time pass, and what happens meanwhile happen. Once a scenario has called it, time
   * passes only in it, in `settle` and `idle`, and while an answer is awaited; at the end of the
   * scenario it stands still.
   *
   * @param ms how long, in virtual milliseconds.
   * @throws {RangeError} (as a rejection) when `ms` is not a number from 0 on.
   */
  advance(ms: number): Promise<void>;
  /** Has something checked after each step from now on. */
  invariant(name: string, check: Check): void;
  /**
   * Has something checked that must come true, as the check then says by returning nothing: once
   * from now on, or each time that `when` holds, in the time that is given, or before the run ends.
   */
  eventually(name: string, check: Check, options?: EventuallyOptions): void;
  /** A disk of this run, empty at first, which fails as the faults of the run say. */
  readonly disk: SimulatedDisk;
  /** Has something checked once, when the scenario is over and nobody can do anything. */
  atEnd(name: string, check: Check): void;
}
