/**
 * Shows losses where they were asked for: in a file, else on the terminal.
 *
 * @module
 */

import { replaceFile } from "../../../actors/checkpoints/durable_folder.ts";
import { print, printError } from "../../print.ts";
import { terminalColumns } from "../../terminal/terminal.ts";
import type { LossCurves } from "./loss_curves.ts";
import { drawLosses } from "./loss_svg.ts";
import { textChart } from "./text_chart.ts";

/** Flags of commands that draw. */
export const CHART_FLAGS = {
  out: {
    kind: "path",
    value: "FILE.svg",
    otherwise: "a small chart here",
    help: "draw into a file, as SVG for light and dark pages",
  },
} as const;

/** Columns of a chart where nobody says how wide a terminal is. */
const COLUMNS = 80;

/**
 * Draws losses.
 *
 * @param out the file, if one is named; what is there is replaced.
 * @throws {Error} when it cannot be written.
 */
export async function showLosses(
  runs: readonly LossCurves[],
  out: string | undefined,
): Promise<void> {
  if (out === undefined) {
    const columns = Deno.stdout.isTerminal() ? terminalColumns() : COLUMNS;
    return textChart(runs, columns).forEach(print);
  }
  const svg = drawLosses(runs);
  try {
    await replaceFile(Deno, out, svg);
  } catch (cause) {
    throw new Error(
      `Cannot write ${out}: it must be a file that can be written, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
  printError(`Wrote ${out}`);
}
