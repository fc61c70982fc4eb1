/**
 * What a benchmark found, and the table that shows it.
 *
 * @module
 */

import { formatTable } from "../../schedules/pictures/grid.ts";
import { markdownTable } from "./markdown_table.ts";
import type { Spread } from "./timing.ts";

/** A figure that must be reached. */
export type Target = { readonly atLeast: number } | { readonly atMost: number };

/** One line of the table. */
export interface Row {
  /** What was measured. */
  readonly name: string;
  /** Of `measured`, such as `GFLOP/s` or `%`. */
  readonly unit: string;
  /** Absent where it could not be measured: then `note` says why. */
  readonly measured?: Spread;
  /** What it must be; absent on a row that is there to understand the others. */
  readonly target?: Target;
  /** Said in words behind the figures. */
  readonly note?: string;
}

/** Whether the median meets the target; undefined where there is none, or nothing was measured. */
export function isMet({ measured, target }: Row): boolean | undefined {
  if (!measured || !target) return undefined;
  return "atLeast" in target ? measured.median >= target.atLeast : measured.median <= target.atMost;
}

/** A number with three figures or more. */
function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

function targetText({ target, unit }: Row): string {
  if (!target) return "";
  const [sign, value] = "atLeast" in target ? ["≥", target.atLeast] : ["≤", target.atMost];
  return `${sign} ${value} ${unit}`;
}

function cells(row: Row): string[] {
  const { measured } = row, met = isMet(row);
  return [
    `  ${row.name}`,
    measured ? `${digits(measured.median)} ${row.unit}` : "not measured",
    measured ? `${digits(measured.low)}–${digits(measured.high)}` : "",
    targetText(row),
    met === undefined ? "" : met ? "✓" : "✗",
    row.note ?? "",
  ];
}

const HEAD = ["", "median", "lowest–highest", "target", "", ""];

/** Sections of rows as text for a person. */
export function table(sections: ReadonlyMap<string, readonly Row[]>): string {
  const bodies = [...sections].map(([title, rows]) => [title, rows.map(cells)] as const);
  const all = [HEAD, ...bodies.flatMap(([, rows]) => rows)];
  const [head, ...lines] = formatTable(all, { left: [0, 4, 5] });
  const shown = bodies.flatMap(([title, rows]) => [title, ...lines.splice(0, rows.length)]);
  return [head, ...shown].join("\n");
}

/** Sections of rows as tables in Markdown, as BENCHMARKS.md has them. */
export function markdown(sections: ReadonlyMap<string, readonly Row[]>): string {
  const tables = [...sections].map(([title, rows]) => {
    const lines = rows.map((row) => {
      const [, median, range, target, met, note] = cells(row);
      return [
        name!.trim().replace(/^(\w+: )? {2}/, "$1… "),
        median!,
        range!,
        `${target} ${met}`.trim(),
        note!,
      ];
    });
    return `### ${title}\n\n${
      markdownTable([["measured", "median", "lowest–highest", "target", ""], ...lines])
    }`;
  });
  return tables.join("\n");
}
