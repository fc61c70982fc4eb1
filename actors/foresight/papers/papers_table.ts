/**
 * What three papers state in numbers, beside what Troupe makes of it.
 *
 * @module
 */

import { axonnRows } from "./rows/axonn_rows.ts";
import { chimeraFormulas } from "./rows/chimera_formulas.ts";
import { chimeraRows } from "./rows/chimera_rows.ts";
import { chimeraScalingRows } from "./rows/chimera_scaling_rows.ts";
import { hanayoRows } from "./rows/hanayo_rows.ts";
import type { PaperRow } from "./rows/paper_row.ts";
import { uncoveredRows } from "./rows/uncovered_rows.ts";

/** All rows, paper by paper. Takes some seconds: it searches hundreds of configurations. */
export function papersTable(): PaperRow[] {
  return [
    ...chimeraFormulas(),
    ...chimeraRows(),
    ...chimeraScalingRows(),
    ...hanayoRows(),
    ...axonnRows(),
    ...uncoveredRows(),
  ];
}
