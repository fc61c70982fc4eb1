/**
 * An isolate in another thread or process than the root: it catches all that its actors throw.
 *
 * @module
 */

import { describeStep } from "../actor/actor.ts";
import { realClock } from "../world/clock.ts";
import { deliver } from "../isolate/deliver.ts";
import { describeFailure } from "../failure.ts";
import { createIsolate, type Isolate } from "../isolate/isolate.ts";
import { fail } from "../actor/lifecycle.ts";
import { turn } from "../world/pace.ts";
import type { Pulse } from "../isolate/pulse.ts";
import { FIRST_SERIAL } from "../isolate/spawning.ts";
import { run } from "../isolate/steps.ts";
import type { Transport } from "./transport.ts";
import type { BootFrame, UpFrame } from "./wire.ts";

/** How an isolate tells the root. */
export type Up = (frame: UpFrame, transfer?: readonly Transferable[]) => void;

/** Makes the isolate that a boot frame describes; its first actor is not launched yet. */
export function openGuest(
  { isolate: number, system, seed, stopGraceMs, observer }: BootFrame,
  pulse: Pulse,
  up: Up,
  lines: Pick<Transport, "post" | "drain">,
): Isolate {
  const isolate = createIsolate(
    number,
    {
      system,
      seed,
      stopGraceMs,
      observer,
      pulse,
      clock: realClock(),
      // After every step, so that a control message can overtake however long a handler computes.
      breathe: turn,
      transport: {
        start: (isolate, launch, transfer) =>
          up({ kind: "start", isolate, launch, transfer }, transfer),
        post: (to, frame, transfer) => lines.post(to, frame, transfer),
        drain: () => lines.drain(),
        kill: (isolate, why) => up({ kind: "kill", isolate, why }),
      },
      onDeadLetter: (letter) => up({ kind: "dead-letter", letter }),
      onFailure: (failure) => up({ kind: "done", reason: failure }),
      onEmpty: (reason) => up({ kind: "done", reason }),
    },
    deliver,
    run,
  );
  addEventListener("error", (event) => {
    event.preventDefault();
    blame(isolate, event.error);
  });
  addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    blame(isolate, event.reason);
  });
  return isolate;
}

/** Blames what nobody caught on the actor at work, else on the isolate's first. */
function blame(isolate: Isolate, error: unknown): void {
  const actor = isolate.current ?? isolate.actors.get(FIRST_SERIAL);
  if (!actor) return;
  fail(isolate, actor, describeFailure(actor.ref.id, "throw", error, describeStep(actor)));
}
