/**
 * The worker in each child process that the main thread cannot hold up. It ends the process when
 * the root dies, also in an endless loop: the root holds the other end of the process's input. And
 * it tells the root when the process is at work, also in a long kernel.
 *
 * @module
 */

import { Heartbeat } from "../runtime/isolate.ts";
import { type Address, beatOf, connect, removeOrphaned, type Rendezvous } from "./rendezvous.ts";

/** What it must know to tell the root. */
export interface WatchdogTick {
  readonly heartbeat: SharedArrayBuffer;
  readonly rendezvous: Rendezvous;
  readonly root: Address;
  /** The number of the isolate. */
  readonly isolate: number;
}

/** The global scope of a Deno worker. */
interface WorkerScope {
  readonly name: string;
  onmessage: (event: MessageEvent<WatchdogTick>) => void;
  postMessage(message: "ready"): void;
}

/** Milliseconds from one beat to the next. */
const BEAT_MS = 100;

/** Sends a byte whenever there is work, or has been since the last one. */
async function beat({ heartbeat: buffer, rendezvous, root, isolate }: WatchdogTick): Promise<void> {
  const heartbeat = new Heartbeat(buffer), byte = new Uint8Array(1);
  const conn = await connect(rendezvous, root, beatOf(isolate));
  setInterval(() => {
    if (heartbeat.isAlive()) conn.write(byte).catch(() => {});
  }, BEAT_MS);
}

/** Ends the process when the root is gone. */
async function watch(directory: string): Promise<void> {
  const rest = new Uint8Array(1);
  while (await Deno.stdin.read(rest).catch(() => null) !== null);
  removeOrphaned(directory);
  Deno.kill(Deno.pid, "SIGKILL");
}

let beating: Promise<void> | undefined;
const scope = globalThis as unknown as WorkerScope;
// No message comes before the module has been evaluated, so nothing is awaited here. Where nobody
// can be told, the root is gone or about to be.
scope.onmessage = ({ data }) => beating ??= beat(data).catch(() => {});
watch(scope.name);
scope.postMessage("ready");
