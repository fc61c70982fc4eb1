/**
 * Metrics as gauges of OpenTelemetry, where Deno exports them (`OTEL_DENO=true`).
 *
 * @module
 */

import { type Gauge, openMeter } from "../../runtime/world/telemetry.ts";
import type { Metrics } from "./metrics.ts";
import { scalarsOf } from "./scalars.ts";

/**
 * Tells OpenTelemetry what a run measures: `troupe.train.step`, and gauges such as
 * `troupe.train.loss`, `troupe.train.eval.loss` and, with the attribute `troupe.worker`,
 * `troupe.train.memory.worker`.
 *
 * @returns undefined where telemetry is off.
 */
export function openTrainTelemetry(): ((metrics: Metrics) => void) | undefined {
  const meter = openMeter(), gauges = new Map<string, Gauge>();
  if (!meter) return undefined;
  return (metrics) => {
    for (
      const { name, value, unit, worker } of [
        { name: "step", value: metrics.step },
        ...scalarsOf(metrics),
      ]
    ) {
      const full = `troupe.train.${name.replaceAll("/", ".")}`;
      const gauge = gauges.get(full) ?? meter.createGauge(full, { ...unit && { unit } });
      gauges.set(full, gauge);
      gauge.record(value, worker === undefined ? {} : { "troupe.worker": worker });
    }
  };
}
