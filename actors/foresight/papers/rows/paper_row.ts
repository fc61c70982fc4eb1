/**
 * A row of the table of what papers state: a figure, and what Troupe makes of it.
 *
 * @module
 */

/** The papers. */
export type PaperName = "chimera" | "hanayo" | "axonn";

/** A figure or a choice of a paper, beside what the model says. */
export interface PaperRow {
  /** The paper. */
  readonly paper: PaperName;
  /** Section, figure or table. */
  readonly where: string;
  /** What is claimed, in a few words. */
  readonly claim: string;
  /** What the figures are in: `×`, `%`, `s`, or nothing for counts and choices. */
  readonly unit: string;
  /** The figure of the paper. */
  readonly stated: number | string;
  /** What comes out here; absent where it is not covered. */
  readonly predicted?: number | string;
  /**
   * How it comes out: `formula`, counted or executed, no machine in it; `simulated` on the paper's
   * machine; `fitted`, a constant was set by it, so that it is no prediction; `not covered`.
   */
  readonly by: "formula" | "simulated" | "fitted" | "not covered";
  /** Predicted ÷ stated - 1; absent where either is no number. */
  readonly difference?: number;
  /** Why it differs, what it rests on, or why it is not covered. */
  readonly reason: string;
}

/** A miss: a choice that is another, or a figure that is off by more than a tenth. */
export function isMiss({ by, stated, predicted, difference }: PaperRow): boolean {
  if (by === "not covered" || by === "fitted") return false;
  return difference === undefined ? stated !== predicted : Math.abs(difference) > 0.1;
}

/** What a row is made from: `[where, claim, unit, stated, predicted, reason]`. */
export type RowCells = readonly [
  where: string,
  claim: string,
  unit: string,
  stated: number | string,
  predicted: number | string,
  reason?: string,
];

/** Rows of a paper that come out in one way. */
export function rowsOf(
  paper: PaperName,
  by: PaperRow["by"],
  all: readonly RowCells[],
): PaperRow[] {
  return all.map(([where, claim, unit, stated, predicted, reason = ""]) => {
    const isFigure = typeof stated === "number" && typeof predicted === "number";
    return {
      paper,
      where,
      claim,
      unit,
      stated,
      predicted,
      by,
      ...(isFigure && { difference: predicted / stated - 1 }),
      reason,
    };
  });
}

/** Rows that the model does not speak of: `[where, claim, unit, stated, reason]`. */
export function uncovered(
  paper: PaperName,
  all: readonly (readonly [string, string, string, number | string, string])[],
): PaperRow[] {
  return all.map(([where, claim, unit, stated, reason]) => ({
    paper,
    where,
    claim,
    unit,
    stated,
    by: "not covered",
    reason,
  }));
}
