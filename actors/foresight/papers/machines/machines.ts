/**
 * All machines of the papers, and what is known of them.
 *
 * @module
 */

import { PIZ_DAINT, V100_CLUSTER } from "./gloo_clusters.ts";
import { HANAYO_MACHINES } from "./hanayo_clusters.ts";
import type { PaperMachine, Sourced } from "./paper_machine.ts";
import { SUMMIT } from "./summit.ts";

/** All machines of the papers. */
export const PAPER_MACHINES: readonly PaperMachine[] = [
  PIZ_DAINT,
  V100_CLUSTER,
  SUMMIT,
  ...HANAYO_MACHINES,
];

/** One figure of a machine, as the table tells it. */
export interface MachineFact {
  readonly machine: string;
  readonly field: string;
  readonly value: string;
  readonly by: Sourced<unknown>["by"];
  readonly source: string;
}

/** What is known, assumed and fitted of every machine. */
export function machineFacts(): MachineFact[] {
  return PAPER_MACHINES.flatMap((machine) =>
    Object.entries(machine).flatMap(([field, fact]): MachineFact[] => {
      if (typeof fact !== "object") return [];
      const { value, by, source } = fact as Sourced<unknown>;
      const text = typeof value === "object" ? JSON.stringify(value) : String(value);
      return [{ machine: machine.name, field, value: text, by, source }];
    })
  );
}
