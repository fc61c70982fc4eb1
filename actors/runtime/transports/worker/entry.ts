/**
 * The module that runs in a Deno worker: an isolate, its lines, and a lock that tells its end.
 *
 * @module
 */

import { isolateGone } from "../../isolate/gone.ts";
import type { Isolate } from "../../isolate/isolate.ts";
import { Pulse } from "../../isolate/pulse.ts";
import { openGuest, type Up } from "../guest.ts";
import { cloning } from "../../snapshot.ts";
import { Lines } from "./lines.ts";
import { locks } from "./locks.ts";
import type { DownFrame } from "../wire.ts";

/** The global scope of a Deno worker. */
interface WorkerScope {
  readonly name: string;
  onmessage: (event: MessageEvent<MessagePort>) => void;
  postMessage(message: "ready"): void;
}

const scope = globalThis as unknown as WorkerScope;

/** The port to the root: the first and only message to the worker itself. */
let root: MessagePort;
const up: Up = (frame, transfer = []) => cloning(() => root.postMessage(frame, [...transfer]));

const lines = new Lines(
  (frame) => isolate?.deliver(frame),
  (to, port) => up({ kind: "introduce", to, line: port }, [port]),
);
let isolate: Isolate | undefined;

async function forget({ isolate: number, reason }: Extract<DownFrame, { kind: "isolate-gone" }>) {
  await lines.settle(number);
  lines.close(number);
  if (isolate) isolateGone(isolate, number, reason);
}

function hear(frame: DownFrame): void {
  switch (frame.kind) {
    case "boot":
      isolate = openGuest(frame, new Pulse(frame.pulse), up, {
        post: (to, frame, transfer) => lines.post(to, frame, transfer),
        drain: () => void lines.drain(),
      });
      return isolate.deliver(frame.launch);
    case "accept":
      return lines.accept(frame.from, frame.line as MessagePort);
    case "isolate-gone":
      return void forget(frame);
    case "has-started":
      return up({ kind: "started", about: frame.about });
  }
}

scope.onmessage = ({ data }) => {
  root = data;
  root.onmessage = ({ data }) => hear(data as DownFrame);
};
// Held until the end of the worker, however that comes: the root waits for it.
locks.request(scope.name, () => {
  scope.postMessage("ready");
  return new Promise(() => {});
});
