/** The table of the figures of the papers, beside what the models make of them. */

import assert from "node:assert/strict";
import { machineFacts } from "../../../actors/foresight/papers/machines/machines.ts";
import { modelsTable } from "../../../actors/foresight/papers/models_table.ts";
import { papersTable } from "../../../actors/foresight/papers/papers_table.ts";
import { isMiss, type PaperRow } from "../../../actors/foresight/papers/rows/paper_row.ts";

const rows = papersTable();
const named = ({ paper, where, claim }: Pick<PaperRow, "paper" | "where" | "claim">) =>
  `${paper} ${where}: ${claim}`;

/** Figures of each paper that are computed, how many may miss, and the mean of how far they are off. */
const ACCURACY = {
  chimera: { formula: [25, 1, 0.046], simulated: [60, 35, 0.405] },
  hanayo: { formula: [9, 2, 0.044], simulated: [32, 21, 0.275] },
  axonn: { formula: [17, 0, 0.017], simulated: [12, 6, 0.362] },
} as const;

Deno.test("no more figures of a paper miss, and none by more, than is known", () => {
  for (const [paper, ways] of Object.entries(ACCURACY)) {
    for (const [by, [count, missesMax, errorMax]] of Object.entries(ways)) {
      const own = rows.filter((row) => row.paper === paper && row.by === by);
      assert.equal(own.length, count, `${paper} ${by}`);
      const misses = own.filter(isMiss).map(named);
      assert.ok(misses.length <= missesMax, misses.join("\n"));
      const errors = own.flatMap(({ difference: one }) => one === undefined ? [] : [Math.abs(one)]);
      const error = errors.reduce((sum, one) => sum + one, 0) / errors.length;
      assert.ok(error <= errorMax, `${paper} ${by}: ${error}`);
    }
  }
});

Deno.test("every row has a source, and a reason where it misses, is fitted or not covered", () => {
  for (const row of rows) {
    assert.match(row.where, /^(abstract|Table [\dI]+|Figure \d|\d|[IV]+)/, named(row));
    const needsReason = isMiss(row) || row.by === "fitted" || row.by === "not covered";
    assert.ok(row.reason.length > 10 || !needsReason, `${named(row)} has no reason`);
    assert.equal(row.predicted === undefined, row.by === "not covered", named(row));
  }
});

Deno.test("no figure is stated twice under one name", () => {
  assert.equal(new Set(rows.map(named)).size, rows.length);
});

Deno.test("fitted constants reach what they were fitted to", () => {
  const fitted = rows.filter(({ by }) => by === "fitted");
  assert.ok(fitted.length >= 8);
  for (const row of fitted) {
    if (row.difference === undefined) assert.equal(row.predicted, row.stated, named(row));
    else assert.ok(Math.abs(row.difference) < 0.035, `${named(row)}: ${row.difference}`);
  }
});

Deno.test("a figure that a constant was fitted to is in the table as fitted, not as predicted", () => {
  for (const { source, by, field } of machineFacts()) {
    if (by !== "fitted" || field === "activationFactor") continue;
    const figures = source.match(/\d+\.\d+(?= [s%]|×)/g) ?? [];
    for (const figure of figures) {
      const same = rows.filter(({ stated }) => stated === Number(figure));
      assert.ok(same.length > 0, `${figure} of "${source}" is in no row`);
      for (const row of same) assert.equal(row.by, "fitted", `${named(row)}: ${source}`);
    }
  }
});

Deno.test("the figures that the papers are known for are all in the table", () => {
  const stated = (paper: string, figure: number | string) =>
    rows.some((row) => row.paper === paper && row.stated === figure);
  const figures = {
    chimera: [1.32, 2.41, 1.19, 1.94, 1.17, 1.16, 2.01, 1.42, 2.34, 1.38, 91.4, 1.09, "W=8 D=4"],
    hanayo: [15.7, 30.4, 23.2, 29.9, 8.2, 17.1, 24.6, 28.0, 8.19, 188.4, 337.5],
    axonn: [22, 13, 4.32, 34.05, 46.08, 0.62, 1.18, 2.46, 520, 130.24, 54.78, 49.4, "2, 4"],
  };
  for (const [paper, all] of Object.entries(figures)) {
    for (const figure of all) assert.ok(stated(paper, figure), `${paper}: ${figure}`);
  }
});

Deno.test("formulas that were corrected are exact; Eq. 1 is within 15 % of the simulator", () => {
  for (const { model, configuration, difference } of modelsTable()) {
    const where = `${model}, ${configuration}: ${difference}`;
    if (model.endsWith("corrected")) assert.ok(Math.abs(difference) < 1e-9, where);
    if (model === "Chimera Eq. 1") assert.ok(Math.abs(difference) < 0.15, where);
    if (model.startsWith("AxoNN's activations, as printed")) assert.ok(difference > 0.9, where);
  }
});
