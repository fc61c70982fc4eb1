/**
 * Entry module of a child process: runs an isolate that ends when the root ends, even while one of
 * them computes.
 *
 * @module
 */

import { Heartbeat } from "../runtime/isolate.ts";
import type { Orders } from "./process.ts";
import { connect, removeOrphaned } from "./rendezvous.ts";
import { serveIsolate } from "./serve.ts";
import { openSocketConnector, SocketPoll } from "./sockets.ts";
import { flush, Outbox, receiveFrames } from "./stream.ts";
import type { WatchdogTick } from "./watchdog.ts";

/** Reads the orders of this process, one line of JSON. */
async function readOrders(): Promise<Orders> {
  const decoder = new TextDecoder(), chunk = new Uint8Array(1024);
  let text = "";
  while (!text.endsWith("\n")) {
    const count = await Deno.stdin.read(chunk);
    if (count === null) endAlone();
    text += decoder.decode(chunk.subarray(0, count), { stream: true });
  }
  return JSON.parse(text);
}

/** Ends the process because the root died before the watchdog could notice. */
function endAlone(): never {
  removeOrphaned(Deno.args[0]!);
  Deno.exit(1);
}

function endWithRoot(error: unknown): never {
  const { NotFound, ConnectionRefused, ConnectionReset, BrokenPipe } = Deno.errors;
  const isGone = [NotFound, ConnectionRefused, ConnectionReset, BrokenPipe]
    .some((kind) => error instanceof kind);
  if (isGone) endAlone();
  throw error;
}

function listen() {
  try {
    const connector = openSocketConnector(rendezvous, number);
    return { ...connector, sockets: new SocketPoll(rendezvous, number) };
  } catch (error) {
    return endWithRoot(error);
  }
}

const { isolate: number, rendezvous, root } = await readOrders();
const calling = connect(rendezvous, root, number).catch(endWithRoot);
// From here on the watchdog reads the input, whose end means that the root has died.
const heartbeat = new Heartbeat();
const watchdog = new Worker(new URL("./watchdog.ts", import.meta.url), {
  type: "module",
  name: rendezvous.directory,
});
const beat: WatchdogTick = { heartbeat: heartbeat.buffer, rendezvous, root, isolate: number };
// Sent immediately, because this thread may soon be busy, and again when the watchdog listens,
// because an earlier message could be lost.
watchdog.postMessage(beat);
watchdog.onmessage = () => watchdog.postMessage(beat);
// Ctrl-C and a closed terminal signal all processes of the terminal; only the root handles them.
Deno.addSignalListener("SIGINT", () => {});
if (Deno.build.os !== "windows") Deno.addSignalListener("SIGHUP", () => {});

const outbox = new Outbox();
const { peers, outboxes, sockets } = listen();
const isolate = serveIsolate({
  send: (frame, transfer) => outbox.post(frame, transfer as readonly ArrayBuffer[]),
  drain: () => flush([outbox, ...outboxes]) ?? sockets.look(),
  heartbeat: heartbeat.buffer,
  peers,
});

const conn = await calling;
outbox.attach(conn);
await receiveFrames(conn, (frame) => isolate.receive(frame));
// The root closes the connection of a finished isolate. Otherwise the root has died, and the
// watchdog ends the process.
if (isolate.isDone) {
  await isolate.finish();
  await outbox.finish();
  Deno.exit(0);
}
