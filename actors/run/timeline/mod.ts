/**
 * A traced step, read: what each worker did, when it did nothing and for whom it waited.
 *
 * @module
 */

export type { Flow } from "./flows.ts";
export type { Gap, GapKind } from "./gaps.ts";
export { readSpan, type Span } from "./span.ts";
export { readStep, type StepTimeline, type WorkerTimeline } from "./step_timeline.ts";
