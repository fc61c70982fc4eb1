/**
 * Steps that take longer than their owner wants: told of, and nothing else.
 *
 * @module
 */

import { type Actor, describeStep } from "../actor/actor.ts";
import type { Step } from "../mailbox/envelope.ts";
import type { SystemEvent } from "../system_api.ts";
import { type Isolate, post } from "./isolate.ts";

/**
 * Tells of a step as soon as it has taken so long, or, if it let nobody else have a turn until then,
 * when it is over.
 *
 * @returns what is to be called when it is over.
 */
export function timeStep(
  isolate: Isolate,
  actor: Actor,
  step: Step,
  limitMs: number,
): () => void {
  const { clock } = isolate.env, begun = clock.now();
  let isTold = false;
  const tell = (isOver: boolean) => {
    isTold = true;
    emit(isolate, {
      type: "slow-step",
      actor: actor.ref.id,
      handling: describeStep(actor, step) ?? "",
      forMs: clock.now() - begun,
      isOver,
      waitsFor: [...step.asks].flatMap((ask) => isolate.asks.get(ask)?.to.id ?? []),
    });
  };
  const cancel = clock.after(limitMs, () => tell(false));
  return () => {
    cancel();
    if (!isTold && clock.now() - begun >= limitMs) tell(true);
  };
}

/** Tells the owner of the system, wherever this happens. */
function emit(isolate: Isolate, event: SystemEvent): void {
  const { onEvent } = isolate.env;
  if (onEvent) onEvent(event);
  else post(isolate, 0, { kind: "event", event });
}
