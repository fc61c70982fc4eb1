/**
 * The module that runs in a confined process: an isolate whose frames come and go over its standard
 * input and output, so that it needs no permission for them. What it prints goes to its standard
 * error.
 *
 * @module
 */

import { flush } from "../stream/flush.ts";
import { Outbox, receiveFrames } from "../stream/stream.ts";
import { serveConfined } from "./serve_confined.ts";

/** All that prints to the standard output. */
const PRINTING = [
  ...["log", "info", "debug", "dir", "dirxml", "table", "count", "group", "groupCollapsed"],
  ...["timeEnd", "timeLog", "clear"],
];
// It must not come between the frames.
const print = console.error.bind(console);
Object.assign(globalThis.console, Object.fromEntries(PRINTING.map((name) => [name, print])));

// Ctrl-C and the end of a terminal reach all its processes. What they mean is for the root to say.
Deno.addSignalListener("SIGINT", () => {});
if (Deno.build.os !== "windows") Deno.addSignalListener("SIGHUP", () => {});

const outbox = new Outbox();
outbox.attach({
  write: (bytes) => Deno.stdout.write(bytes),
  closeWrite: () => Promise.resolve(Deno.stdout.close()),
  close: () => Deno.stdout.close(),
});

const isolate = serveConfined({
  send: (frame, transfer) => outbox.post(frame, transfer as readonly ArrayBuffer[]),
  drain: () => flush([outbox]),
});
// The first sign has left before any code of the package is here, which may never let go of this
// thread.
await outbox.idle;
await receiveFrames(Deno.stdin, (frame) => isolate.receive(frame));
// The root lets go of what is done, or has died.
if (isolate.isDone) await outbox.finish();
Deno.exit(0);
