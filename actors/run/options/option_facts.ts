/**
 * What a run was asked to do, as far as ranks can compare it.
 *
 * @module
 */

import type { Facts } from "../ranks/program_facts.ts";
import type { TrainOptions } from "./train_options.ts";

/** The options that say the same in every process: words, numbers, and records of them. */
export function optionFacts(options: TrainOptions): Facts {
  const { model, schedule, mpi, journal: _journal, ...others } = options;
  const told = Object.entries(others).filter(([name, value]) =>
    ["string", "number", "boolean"].includes(typeof value) ||
    typeof value === "object" && RECORDS.includes(name)
  );
  const named = typeof schedule === "object" ? schedule.name : schedule;
  return Object.fromEntries(
    [...told, ["model", model?.name], ["schedule", named], ["mpi.map", mpi?.map]]
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}

/** The options that are records of words and numbers. */
const RECORDS = ["scheduleOptions", "optimizer", "learningRate", "link", "adapters", "faults"];
