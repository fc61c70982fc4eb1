/**
 * OpenTelemetry: a span for each step and metrics of each actor, where Deno exports them
 * (`OTEL_DENO=true`).
 *
 * Deno's own providers are used, so nothing is imported for it; where it is off, one look at them
 * when an isolate is made is all that it costs.
 *
 * @module
 */

import type { Isolate } from "../isolate/isolate.ts";
import type { Observer } from "../observer.ts";

/** As much of OpenTelemetry's API as is used. */
interface Span {
  setAttribute(name: string, value: string): unknown;
  end(): void;
}

interface Tracer {
  startSpan(name: string, options?: { readonly attributes: Readonly<Attributes> }): Span;
}

type Attributes = Record<string, string | number>;

/** A number that is told when it changes. */
export interface Gauge {
  /** Tells it. */
  record(value: number, attributes: Attributes): void;
}

interface ObservableGauge {
  addCallback(callback: (result: Observed) => void): void;
  removeCallback(callback: (result: Observed) => void): void;
}

interface Observed {
  observe(value: number, attributes: Attributes): void;
}

/** Makes the instruments of metrics. */
interface Meter {
  createGauge(name: string, options: object): Gauge;
  createHistogram(name: string, options: object): {
    record(value: number, attributes: Attributes): void;
  };
  createObservableGauge(name: string, options: object): ObservableGauge;
}

interface Providers {
  readonly tracerProvider: { getTracer(name: string): Tracer };
  readonly meterProvider: { getMeter(name: string): Meter };
}

/** Name of the instrumentation. */
const NAME = "troupe";

/**
 * Observes an isolate with OpenTelemetry. Each step, and each part of one that waits for answers,
 * is a span named by the type of its message, with the attributes `troupe.actor`, `troupe.from`,
 * `troupe.isolate` and, where the actor says it, `troupe.doing`. Metrics: `troupe.step.duration`, a
 * histogram in milliseconds by actor and message, whose count is that of the messages handled; and
 * `troupe.mailbox.depth`, the messages that wait, by actor.
 *
 * @returns undefined where telemetry is off.
 */
export function openTelemetry(isolate: Isolate): Observer | undefined {
  const tracer = openTracer(), meter = openMeter();
  if (!tracer || !meter) return undefined;
  const duration = meter.createHistogram("troupe.step.duration", { unit: "ms" });
  const depth = meter.createObservableGauge("troupe.mailbox.depth", { unit: "{message}" });
  const tellDepths = (result: Observed) => {
    for (const { ref, mailbox, parent } of isolate.actors.values()) {
      if (parent) result.observe(mailbox.length, placeOf(ref));
    }
  };
  const placeOf = ({ id }: { readonly id: string }) => ({
    "troupe.actor": id,
    "troupe.isolate": isolate.number,
  });
  depth.addCallback(tellDepths);
  let step: { readonly span: Span; readonly begun: number; readonly type: string } | undefined;
  return {
    begins({ ref }, { from, message: { type } }) {
      const attributes = { ...placeOf(ref), "troupe.from": from.id };
      step = { span: tracer.startSpan(type, { attributes }), begun: performance.now(), type };
    },
    did() {},
    ends({ ref, doing }) {
      if (!step) return;
      const { span, begun, type } = step;
      if (doing !== "") span.setAttribute("troupe.doing", doing);
      span.end();
      duration.record(performance.now() - begun, { ...placeOf(ref), "troupe.message": type });
      step = undefined;
    },
    closes() {
      depth.removeCallback(tellDepths);
    },
  };
}

/** What metrics are told to; undefined where telemetry is off. */
export function openMeter(): Meter | undefined {
  return openTracer() && providers?.meterProvider.getMeter(NAME);
}

const { telemetry: providers } = Deno as unknown as { telemetry?: Providers };

/** Deno's tracer refuses to make a span where it exports none. */
function openTracer(): Tracer | undefined {
  try {
    const tracer = providers?.tracerProvider.getTracer(NAME);
    tracer?.startSpan("probe");
    return tracer;
  } catch {
    return undefined;
  }
}
