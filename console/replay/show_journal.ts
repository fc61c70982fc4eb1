/**
 * A journal as text: what it is of, and its steps in the order of time.
 *
 * @module
 */

import type { Journal, StepRecord } from "../../actors/simulation/mod.ts";
import { inOneLine } from "../escape.ts";
import { describeEnds } from "./journal_ends.ts";

/** Modules that are listed; the rest are counted. */
const MODULES_SHOWN = 8;

/** Columns of the steps; the last is as long as it is. */
const COLUMNS = ["time ms", "isolate", "step", "actor", "message", "chain", "what it did"] as const;

/** The columns that hold numbers, which end at their right edge. */
const NUMBERS = 3;

/**
 * Describes a journal. Times are told from its first step: isolates of one host read one clock, so
 * their steps are put in the order of time.
 */
export function describeJournal(journal: Journal): string {
  const { header, steps, payloads } = journal;
  const { package: version, seed, strategy, device, deno, configuration, actors } = header;
  const kept = payloads.size > 0 ? `, ${payloads.size} messages kept` : "";
  const isolates = new Set(steps.map(({ isolate }) => isolate)).size;
  const where = isolates > 1 ? ` of ${isolates} isolates` : "";
  return [
    `Troupe ${version}, Deno ${deno}, device ${device}, seed ${seed}, ${strategy}`,
    `configuration ${JSON.stringify(configuration)}`,
    ...describeModules(actors),
    `${steps.length} steps${where}${kept}${describeEnds(journal)}`,
    "Times are since the first step; chain is the running hash of what the actor was sent and did.",
    ...describeSteps(steps),
  ].map(inOneLine).join("\n");
}

function describeModules(hashes: Journal["header"]["actors"]): string[] {
  const modules = Object.entries(hashes), more = modules.length - MODULES_SHOWN;
  return [
    ...modules.slice(0, MODULES_SHOWN).map(([module, hash]) => `${module} ${hash}`),
    ...(more > 0 ? [`and ${more} more modules`] : []),
  ];
}

function* describeSteps(steps: readonly StepRecord[]): Generator<string, void> {
  const ordered = steps.toSorted((a, b) =>
    a.t - b.t || (a.isolate === b.isolate ? a.n - b.n : a.isolate - b.isolate)
  );
  const first = ordered[0]?.t ?? 0;
  const rows = [COLUMNS, ...ordered.map((step) => cellsOf(step, first))];
  // There may be more rows than a call can have arguments.
  const widths = COLUMNS.map((_, i) =>
    rows.reduce((most, row) => Math.max(most, row[i]!.length), 0)
  );
  for (const row of rows) {
    const cells = row.map((cell, i) =>
      i < NUMBERS ? cell.padStart(widths[i]!) : cell.padEnd(widths[i]!)
    );
    yield cells.join("  ").trimEnd();
  }
}

function cellsOf(step: StepRecord, first: number): readonly string[] {
  const { n, t, isolate, actor, from, type, name, chain, choice = 0, arity = 0 } = step;
  const { waits = 0, faults = [] } = step;
  const notes = [
    ...name ? [name] : [],
    ...waits > 0 ? [`after ${waits} ${waits > 1 ? "timers" : "timer"}`] : [],
    ...choice > 0 ? [`choice ${choice} of ${arity}`] : [],
    ...faults,
  ];
  const message = `< ${from} ${type}`;
  return [(t - first).toFixed(3), `${isolate}`, `${n}`, actor, message, chain, notes.join(", ")]
    .map(inOneLine);
}
