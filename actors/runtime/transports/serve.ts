/**
 * An isolate in another thread, process or host than the root: it catches all that its actors throw.
 *
 * @module
 */

import { describeStep } from "../actor/actor.ts";
import { fail } from "../actor/lifecycle.ts";
import { describeFailure } from "../failure.ts";
import { deliver } from "../isolate/deliver.ts";
import { isolateGone } from "../isolate/gone.ts";
import { Isolate } from "../isolate/isolate.ts";
import { Pulse } from "../isolate/pulse.ts";
import { FIRST_SERIAL } from "../isolate/spawning.ts";
import { run } from "../isolate/steps.ts";
import { openTelemetry } from "../world/telemetry.ts";
import { realClock } from "../world/clock.ts";
import { watchHeap } from "../world/heap.ts";
import { turn } from "../world/pace.ts";
import { Peers, type Up } from "./peers.ts";
import type { IsolateSide } from "./transport.ts";
import type { BootFrame, DownFrame, Frame, SwitchFrame } from "./wire.ts";

/** An isolate that lives here. */
export interface ServedIsolate {
  /** To be called with each frame that the root sends, in order. */
  receive(frame: unknown): void;
  /** Its last actor has ended, and the root been told: the root closes the connection next. */
  readonly isDone: boolean;
  /** Resolves when all is sent that it had for other isolates. */
  finish(): Promise<void>;
}

type FromRoot = DownFrame | SwitchFrame | Frame;

/**
 * Runs an isolate in this thread, or process: what the module that a {@linkcode Transport} starts
 * has to call, once. The first frame that it receives says which isolate it is.
 */
export function serveIsolate(side: IsolateSide): ServedIsolate {
  watchHeap();
  let isolate: Isolate | undefined, peers: Peers | undefined, isDone = false;
  /** What has come while the first actor has not begun: a stop then would keep it from its cleanup. */
  let early: FromRoot[] | undefined = [];
  const up: Up = (frame, transfer = []) => {
    isDone ||= frame.kind === "done";
    side.send(frame, transfer);
  };
  const begin = async (frame: BootFrame) => {
    peers = new Peers(frame.isolate, side.peers, (frame) => isolate?.deliver(frame), up);
    isolate = openIsolate(frame, up, peers, side);
    isolate.deliver(frame.launch);
    await turn();
    const frames = early ?? [];
    early = undefined;
    for (const frame of frames) receive(frame);
  };
  const forget = async (
    { isolate: gone, reason }: Extract<DownFrame, { kind: "isolate-gone" }>,
  ) => {
    await peers!.settle(gone);
    peers!.close(gone);
    isolateGone(isolate!, gone, reason);
  };
  const receive = (frame: FromRoot): void => {
    if (frame.kind === "boot") return void begin(frame);
    if (early) return void early.push(frame);
    switch (frame.kind) {
      case "accept":
        return peers!.accept(frame.from, frame.address);
      case "switch":
        return peers!.switch(frame.from);
      case "isolate-gone":
        return void forget(frame);
      case "has-started":
        return up({ kind: "started", about: frame.about });
      default:
        return isolate!.deliver(frame);
    }
  };
  return {
    receive: (frame) => receive(frame as FromRoot),
    get isDone() {
      return isDone;
    },
    finish: async () => await peers?.finish(),
  };
}

/** Makes the isolate that a boot frame describes; its first actor is not launched yet. */
function openIsolate(
  { isolate: number, system, seed, stopGraceMs, observer, places }: BootFrame,
  up: Up,
  peers: Peers,
  side: IsolateSide,
): Isolate {
  const isolate = new Isolate(
    number,
    {
      system,
      seed,
      stopGraceMs,
      observer,
      pulse: new Pulse(side.pulse),
      collectives: side.collectives,
      places,
      clock: realClock(),
      telemetry: openTelemetry,
      // After every step, so that a control message can overtake however long a handler computes.
      breathe: turn,
      network: {
        start: (isolate, launch, transfer) =>
          up({ kind: "start", isolate, launch, transfer }, transfer),
        post: (to, frame, transfer) =>
          to === 0 ? side.send(frame, transfer) : peers.post(to, frame, transfer),
        drain: () => side.drain?.(),
        kill: (isolate, why) => up({ kind: "kill", isolate, why }),
      },
      onDeadLetter: (letter, message) => up({ kind: "dead-letter", letter, message }),
      onFailure: (failure) => up({ kind: "done", reason: failure }),
      onEmpty: (reason) => up({ kind: "done", reason }),
    },
    deliver,
    run,
  );
  for (const [type, key] of [["error", "error"], ["unhandledrejection", "reason"]] as const) {
    addEventListener(type, (event) => {
      event.preventDefault();
      blame(isolate, (event as unknown as Record<string, unknown>)[key]);
    });
  }
  return isolate;
}

/** Blames what nobody caught on the actor at work, else on the isolate's first. */
function blame(isolate: Isolate, error: unknown): void {
  const actor = isolate.current ?? isolate.actors.get(FIRST_SERIAL);
  if (!actor) return;
  fail(
    isolate,
    actor,
    describeFailure(actor.ref.id, "throw", error, describeStep(actor, actor.step)),
  );
}
