/**
 * The module that runs in a confined process: an isolate whose frames come and go over its standard
 * input and output, so that it needs no permission for them. What it prints goes to its standard
 * error.
 *
 * Nothing in here protects anybody: whoever runs in this process can undo all of it. What protects is
 * on the other side of the pipes.
 *
 * @module
 */

// Here, before it is confined, so that loading it later needs no permission.
import "../../packages/bootstrap.ts";
import type { Observer } from "../../observer.ts";
import { serveIsolate } from "../serve.ts";
import { flush } from "../stream/flush.ts";
import { Outbox, receiveFrames } from "../stream/stream.ts";
import { isCall, type Sign } from "./signs.ts";

/** All that prints to the standard output. */
const PRINTING = [
  ...["log", "info", "debug", "dir", "dirxml", "table", "count", "group", "groupCollapsed"],
  ...["timeEnd", "timeLog", "clear"],
];
// It must not come between the frames.
const print = console.error.bind(console);
Object.assign(globalThis.console, Object.fromEntries(PRINTING.map((name) => [name, print])));

const outbox = new Outbox();
outbox.attach({
  write: (bytes) => Deno.stdout.write(bytes),
  closeWrite: () => Promise.resolve(Deno.stdout.close()),
  close: () => Deno.stdout.close(),
});

let steps = 0, isAtWork = false;
const giveSign = () => {
  const sign: Sign = { kind: "sign", steps, isAtWork };
  outbox.post(sign);
};
// The first one has left before any code of the package is here, which may never let go of this thread.
giveSign();
await outbox.idle;

const observer: Observer = {
  begins() {
    steps++;
    isAtWork = true;
  },
  ends() {
    isAtWork = false;
  },
  did() {},
  closes() {},
};

const isolate = serveIsolate({
  send: (frame, transfer) => outbox.post(frame, transfer as readonly ArrayBuffer[]),
  drain: () => flush([outbox]),
  observer,
});

await receiveFrames(Deno.stdin, (frame) => {
  if (isCall(frame)) giveSign();
  else isolate.receive(frame);
});
// The root lets go of what is done, or has died.
if (isolate.isDone) await outbox.finish();
Deno.exit(0);
