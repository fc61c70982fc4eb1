/**
 * The watchdog of a child process: a worker that the main thread cannot block. It ends the process
 * when the root dies, even during an endless loop, because the root holds the other end of the
 * process's standard input. It also reports activity to the root, even during a long kernel.
 *
 * @module
 */

import { Heartbeat } from "../runtime/isolate.ts";
import type { Orders } from "./process.ts";
import { beatOf, connect, removeOrphaned } from "./rendezvous.ts";
import type { WorkerScope } from "./serve.ts";

/** Data that the watchdog needs to report activity to the root. */
export interface WatchdogTick extends Orders {
  readonly heartbeat: SharedArrayBuffer;
}

/** Milliseconds from one beat to the next. */
const BEAT_MS = 100;

/** Sends a byte in each interval with activity. */
async function beat({ heartbeat: buffer, rendezvous, root, isolate }: WatchdogTick): Promise<void> {
  const heartbeat = new Heartbeat(buffer), byte = new Uint8Array(1);
  const conn = await connect(rendezvous, root, beatOf(isolate));
  setInterval(() => {
    if (heartbeat.isAlive()) conn.write(byte).catch(() => {});
  }, BEAT_MS);
}

/** Ends the process when the root has died. */
async function watch(directory: string): Promise<void> {
  const rest = new Uint8Array(1);
  while (await Deno.stdin.read(rest).catch(() => null) !== null);
  removeOrphaned(directory);
  Deno.kill(Deno.pid, "SIGKILL");
}

let beating: Promise<void> | undefined;
const scope = globalThis as unknown as WorkerScope<WatchdogTick, "ready">;
// The module must install the handler synchronously, so nothing is awaited here. If the connection
// fails, the root has died or is about to end.
scope.onmessage = ({ data }) => beating ??= beat(data).catch(() => {});
watch(scope.name);
scope.postMessage("ready");
