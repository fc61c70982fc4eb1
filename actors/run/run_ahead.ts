/**
 * Steps in order, also where the next ones must begin before this one has ended.
 *
 * @module
 */

import type { Engine } from "./engines/engine.ts";
import type { StepOutcome, StepRequest } from "../pipeline/step.ts";

/** A step that has been taken. */
export interface TakenStep {
  readonly request: StepRequest;
  readonly outcome: StepOutcome;
  /** Time from its beginning, or the end of the step before if that came later, to its end. */
  readonly seconds: number;
}

/**
 * Takes the steps that are requested. A request is asked for when the engine has room for its step:
 * of an engine that does not run ahead, when whoever reads has done with the step before.
 *
 * @param pausesAfter whether a step must have ended before the next begins, as before a checkpoint;
 * the last one always has.
 */
export async function* runAhead(
  engine: Pick<Engine, "step" | "ahead" | "drain">,
  requests: AsyncIterable<StepRequest>,
  pausesAfter: (step: number) => boolean,
): AsyncGenerator<TakenStep, void> {
  const { ahead = 0 } = engine, begun: ReturnType<typeof begin>[] = [];
  let lastEnd = 0;
  const begin = (request: StepRequest) => {
    const began = performance.now();
    const ending = engine.step(request).then((outcome) => ({ outcome, end: performance.now() }));
    // A failure is met in order, when the outcome is asked for.
    ending.catch(() => {});
    return { request, began, ending };
  };
  const oldest = async (): Promise<TakenStep> => {
    const { request, began, ending } = begun.shift()!, { outcome, end } = await ending;
    const seconds = (end - Math.max(began, lastEnd)) / 1000;
    lastEnd = end;
    return { request, outcome, seconds };
  };
  for await (const request of requests) {
    begun.push(begin(request));
    if (ahead === 0) await begun[0]!.ending;
    const isPause = pausesAfter(request.step);
    if (isPause) await engine.drain?.();
    while (begun.length > (isPause ? 0 : ahead)) yield await oldest();
  }
  await engine.drain?.();
  while (begun.length > 0) yield await oldest();
}
