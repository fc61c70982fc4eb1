/**
 * The values that travel if each layer is a stage: what a search for cuts knows of skip edges.
 *
 * @module
 */

import { skipEdges } from "../../kernels/mod.ts";
import type { LayerSkip } from "../../schedules/mod.ts";
import { type LinkedModel, runsOf } from "../pipeline/links/linked_schedule.ts";
import type { LinkCost } from "./profile/profile.ts";

/** The values that go beyond the next layer, and what their messages take. */
export function layerSkips(compiled: LinkedModel, link: LinkCost | undefined): LayerSkip[] {
  const { model } = compiled, runs = runsOf(compiled), slices = model.slicing?.slices ?? 1;
  return skipEdges(model, model.layers.map((_, layer) => layer)).map((edge) => ({
    from: edge.from,
    to: edge.to,
    hasGradient: edge.hasGradient,
    send: link ? slices * link.latencyMs + runs * edge.bytes / (link.bytesPerMs ?? Infinity) : 0,
  }));
}
