/**
 * What a worker is made from.
 *
 * @module
 */

import type { DeviceChoice, Slicing, StageOptions } from "../../../kernels/mod.ts";
import type { WeightUpdates } from "../../../schedules/mod.ts";
import type { ReduceOptions, TieEnd } from "../../commit/copy_sync.ts";
import type { LinkOptions } from "../links/emulated_link.ts";
import type { StageCopy } from "../layout.ts";
import type { PolicyData } from "../policy_data.ts";
import type { CopyInit } from "../stage_copies.ts";
import type { WorkerFault } from "./faults.ts";

/** The same without first weights and moments, which nobody keeps once they are loaded. */
export function withoutStates(init: WorkerInit): WorkerInit {
  const state = { weights: new Map(), moments: new Map() };
  return { ...init, held: init.held.map((one) => ({ ...one, state })) };
}

/** How the sequences of its micro-batches are cut; undefined where they are not. */
export const slicingOf = ({ held }: Pick<WorkerInit, "held">): Slicing | undefined =>
  held[0]?.program.slicing;

/** Everything a worker is made from, as plain data. */
export interface WorkerInit {
  /** Its number over all data-parallel replicas. */
  readonly worker: number;
  /** Its data-parallel replica. */
  readonly replica: number;
  /** What computes. */
  readonly device: DeviceChoice;
  /** Whether stand-ins take the place of kernels, and no device is opened. */
  readonly isRehearsed?: boolean | undefined;
  /** The copies of stages that it holds. */
  readonly held: readonly CopyInit[];
  /** For each stage all its copies. */
  readonly copies: readonly (readonly StageCopy[])[];
  /** Workers of a data-parallel replica: the P of "1/P of the model". */
  readonly pipelineWorkers: number;
  /** When its weights step. */
  readonly updates: WeightUpdates;
  /** Who orders its actions in a step, where steps end with a flush. */
  readonly policy: PolicyData;
  /** How its stages store and step their weights. */
  readonly stage: StageOptions;
  /** Runs of the kernels for each micro-batch: 2 where backwards run in halves. */
  readonly halves: 1 | 2;
  /** How gradients of copies are added. */
  readonly reduce: ReduceOptions;
  /** For each stage the parameters that are tied to others. */
  readonly ties: readonly (readonly TieEnd[])[];
  /** Delays messages to others as such a link would. */
  readonly link?: LinkOptions | undefined;
  /** Whether to report when each action ran and when its input came. */
  readonly isTraced: boolean;
  /** How the worker fails, where a run is asked to suffer that. */
  readonly fault?: WorkerFault | undefined;
}
