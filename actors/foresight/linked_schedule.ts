/**
 * The skip edges of a compiled model, as schedules count them.
 *
 * @module
 */

import { type ModelProgram, skipEdges, startsOf } from "../../kernels/mod.ts";
import { type LayerSkip, type Schedule, withEdges } from "../../schedules/mod.ts";
import type { LinkCost } from "./profile/profile.ts";

/** A compiled model, and the runs of its kernels for each micro-batch. */
interface Compiled {
  readonly model: ModelProgram;
  readonly halves: 1 | 2;
}

/** Runs of the kernels for each micro-batch, each with values of its own. */
const runsOf = ({ model, halves }: Compiled): number => halves * (model.slicing?.slices ?? 1);

/** The schedule with the values that go beyond the next stage where the model is cut. */
export function linkedSchedule(schedule: Schedule, compiled: Compiled): Schedule {
  const { model } = compiled, edges = skipEdges(model, startsOf(model, schedule.stages));
  if (edges.length === 0) return schedule;
  const runs = runsOf(compiled);
  return withEdges(
    schedule,
    edges.map(({ from, to, bytes, hasGradient }) => ({
      from,
      to,
      bytes: runs * bytes,
      hasGradient,
    })),
  );
}

/** The values that go beyond the next layer, and what their messages take. */
export function layerSkips(compiled: Compiled, link: LinkCost | undefined): LayerSkip[] {
  const { model } = compiled, runs = runsOf(compiled), slices = model.slicing?.slices ?? 1;
  return skipEdges(model, model.layers.map((_, layer) => layer)).map((edge) => ({
    from: edge.from,
    to: edge.to,
    hasGradient: edge.hasGradient,
    send: link ? slices * link.latencyMs + runs * edge.bytes / (link.bytesPerMs ?? Infinity) : 0,
  }));
}
