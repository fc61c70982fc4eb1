/**
 * The module that runs in a Deno worker: an isolate that catches all that its actors throw.
 *
 * @module
 */

import { describeStep } from "../actor.ts";
import { realClock } from "../clock.ts";
import { deliver } from "../deliver.ts";
import { describeFailure } from "../failure.ts";
import { isolateGone } from "../gone.ts";
import { createIsolate, type Isolate } from "../isolate.ts";
import { fail } from "../lifecycle.ts";
import { turn } from "../pace.ts";
import { FIRST_SERIAL } from "../spawning.ts";
import { run } from "../steps.ts";
import { Lines } from "./lines.ts";
import { locks } from "./locks.ts";
import type { DownFrame, UpFrame } from "./wire.ts";

/** The global scope of a Deno worker. */
interface WorkerScope extends EventTarget {
  readonly name: string;
  onmessage: (event: MessageEvent<MessagePort>) => void;
  postMessage(message: "ready"): void;
}

const scope = globalThis as unknown as WorkerScope;

/** The port to the root: the first and only message to the worker itself. */
let root: MessagePort;
const up = (frame: UpFrame, transfer: readonly Transferable[] = []) =>
  root.postMessage(frame, [...transfer]);

const lines = new Lines(
  (frame) => isolate?.deliver(frame),
  (to, port) => up({ kind: "introduce", to, port }, [port]),
);
let isolate: Isolate | undefined;

function boot(frame: Extract<DownFrame, { kind: "boot" }>): void {
  const { seed, stopGraceMs, launch } = frame;
  isolate = createIsolate(
    frame.isolate,
    {
      seed,
      stopGraceMs,
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
  isolate.deliver(launch);
}

async function forget({ isolate: number, reason }: Extract<DownFrame, { kind: "isolate-gone" }>) {
  await lines.settle(number);
  lines.close(number);
  if (isolate) isolateGone(isolate, number, reason);
}

/** Blames what nobody caught on the actor at work, else on the isolate's first. */
function blame(error: unknown): void {
  const actor = isolate?.current ?? isolate?.actors.get(FIRST_SERIAL);
  if (!isolate || !actor) return;
  fail(isolate, actor, describeFailure(actor.ref.id, "throw", error, describeStep(actor)));
}

function hear(frame: DownFrame): void {
  switch (frame.kind) {
    case "boot":
      return boot(frame);
    case "accept":
      return lines.accept(frame.from, frame.port);
    case "isolate-gone":
      return void forget(frame);
  }
}

scope.onmessage = ({ data }) => {
  root = data;
  root.onmessage = ({ data }) => hear(data as DownFrame);
};
scope.addEventListener("error", (event) => {
  event.preventDefault();
  blame((event as ErrorEvent).error);
});
scope.addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  blame((event as PromiseRejectionEvent).reason);
});
// Held until the end of the worker, however that comes: the root waits for it.
locks.request(scope.name, () => {
  scope.postMessage("ready");
  return new Promise(() => {});
});
