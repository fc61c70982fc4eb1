/**
 * Tells of a cut that sends more over skip edges than along the chain.
 *
 * @module
 */

import { DTYPE_BYTES, elementCount, isSkip, mebibytes, stageBorder } from "../../../kernels/mod.ts";
import { formatEdge, type Schedule } from "../../../schedules/mod.ts";
import { linkedSchedule } from "../../pipeline/links/linked_schedule.ts";
import type { CompiledRun } from "../compile_run.ts";

/** Edges that a sentence names. */
const NAMED_MAX = 6;

/**
 * What is to be told of a cut: nothing where its stages hand on as much as they send by name, or more.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { gpt2 } from "../../../kernels/mod.ts";
 * import { createSchedule } from "../../../schedules/mod.ts";
 * import { compileRun } from "../compile_run.ts";
 *
 * const model = gpt2({ layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 32 }, 2);
 * const schedule = createSchedule("1f1b", { workers: 2, microBatches: 4 });
 * assert.equal(skipTrafficNote(compileRun({ model }, schedule), schedule), undefined);
 * ```
 */
export function skipTrafficNote(compiled: CompiledRun, schedule: Schedule): string | undefined {
  const { edges = [] } = linkedSchedule(schedule, compiled), { programs, halves } = compiled;
  const bySkips = edges.reduce((sum, { to, bytes = 0 }) => sum + to.length * bytes, 0);
  const handed = programs.slice(0, -1).reduce((sum, program) => {
    const runs = halves * (program.slicing?.slices ?? 1);
    const own = stageBorder(program).outputs.filter(({ name }) => !isSkip(name));
    return own.reduce(
      (bytes, { dtype, shape }) => bytes + runs * elementCount(shape) * DTYPE_BYTES[dtype],
      sum,
    );
  }, 0);
  if (bySkips <= handed) return undefined;
  const named = edges.slice(0, NAMED_MAX).map(formatEdge);
  const more = edges.length > NAMED_MAX ? `, and ${edges.length - NAMED_MAX} more` : "";
  return `This cut sends ${mebibytes(bySkips)} of a micro-batch over skip edges (${
    named.join(", ")
  }${more}), more than the ${
    mebibytes(handed)
  } that stages hand to the next; fewer stages, or another layout, may send less`;
}
