/**
 * The module that runs in a child process: an isolate that ends with the root, whatever either of
 * them is doing then.
 *
 * @module
 */

import type { Isolate } from "../../isolate/isolate.ts";
import { isolateGone } from "../../isolate/gone.ts";
import { turn } from "../../world/pace.ts";
import { Pulse } from "../../isolate/pulse.ts";
import { openGuest, type Up } from "../guest.ts";
import { Links } from "./links.ts";
import type { Orders } from "./reception.ts";
import type { Heartbeat } from "./watchdog.ts";
import { SocketPoll } from "./socket_poll.ts";
import { type Address, call } from "./station.ts";
import { flush } from "../stream/flush.ts";
import { Outbox, receive } from "../stream/stream.ts";
import type { BootFrame, DownFrame, Frame, SwitchFrame } from "../wire.ts";

/** What this process must know comes as one line of JSON. */
async function readOrders(): Promise<Orders> {
  const decoder = new TextDecoder(), chunk = new Uint8Array(1024);
  let text = "";
  while (!text.endsWith("\n")) {
    const count = await Deno.stdin.read(chunk);
    if (count === null) Deno.exit(1);
    text += decoder.decode(chunk.subarray(0, count), { stream: true });
  }
  return JSON.parse(text);
}

const { isolate: number, station, root } = await readOrders();
const calling = call(station, root, number);
// From here on the end of the input is the end of the root, and the watchdog sees it.
const pulse = new Pulse();
const watchdog = new Worker(new URL("./watchdog.ts", import.meta.url), {
  type: "module",
  name: station.directory,
});
const beat: Heartbeat = { pulse: pulse.buffer, station, root, isolate: number };
// At once, as this thread may soon be at work; and when it says that it listens, as a message to it
// could be lost before.
watchdog.postMessage(beat);
watchdog.onmessage = () => watchdog.postMessage(beat);
// Ctrl-C and the end of a terminal reach all its processes. What they mean is for the root to say.
Deno.addSignalListener("SIGINT", () => {});
if (Deno.build.os !== "windows") Deno.addSignalListener("SIGHUP", () => {});

const control = new Outbox();
let isDone = false;
const up: Up = (frame, transfer) => {
  isDone ||= frame.kind === "done";
  control.post(frame, transfer as readonly ArrayBuffer[]);
};
const links = new Links(
  station,
  number,
  (frame) => isolate?.deliver(frame),
  (frame, transfer) => control.post(frame, transfer),
);
const sockets = new SocketPoll(station, number);
let isolate: Isolate | undefined;

const lines = {
  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    if (to === 0) control.post(frame, transfer);
    else links.post(to, frame, transfer);
  },
  drain: () => flush([control, ...links.outboxes()]) ?? sockets.look(),
};

async function forget({ isolate: gone, reason }: Extract<DownFrame, { kind: "isolate-gone" }>) {
  await links.settle(gone);
  links.close(gone);
  if (isolate) isolateGone(isolate, gone, reason);
}

/** What has come while the first actor has not begun: a stop then would keep it from its cleanup. */
let early: (DownFrame | SwitchFrame | Frame)[] | undefined = [];

function begin(frame: BootFrame): void {
  isolate = openGuest(frame, pulse, up, lines);
  isolate.deliver(frame.launch);
  turn().then(() => {
    const frames = early ?? [];
    early = undefined;
    for (const frame of frames) hear(frame);
  });
}

function hear(frame: DownFrame | SwitchFrame | Frame): void {
  if (early && frame.kind !== "boot") return void early.push(frame);
  switch (frame.kind) {
    case "boot":
      return begin(frame);
    case "accept":
      return links.accept(frame.from, frame.line as Address);
    case "switch":
      return links.switch(frame.from);
    case "isolate-gone":
      return void forget(frame);
    case "has-started":
      return up({ kind: "started", about: frame.about });
    default:
      return isolate?.deliver(frame);
  }
}

const conn = await calling;
control.attach(conn);
await receive(conn, (frame) => hear(frame as DownFrame | SwitchFrame | Frame));
// The root lets go of what is done. If it is not, the root has died, and the watchdog acts.
if (isDone) {
  await links.finish();
  await control.finish();
  Deno.exit(0);
}
