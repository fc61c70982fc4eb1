/**
 * The entry of a worker that dies in the middle of its work: as it would send its nth message
 * (n from the worker's address) it leaves without a word, like a thread that crashes.
 */

const send = MessagePort.prototype.postMessage;
let left = Number(new URL(import.meta.url).searchParams.get("messages"));

MessagePort.prototype.postMessage = function (this: MessagePort, ...args: unknown[]) {
  if (left-- === 0) Deno.exit(1);
  Reflect.apply(send, this, args);
} as typeof send;

await import("../../../actors/runtime/transports/worker/entry.ts");
