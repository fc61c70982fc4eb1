/**
 * An isolate of a transport that may break its promises: whatever that does, the system goes on, and
 * hears of it as of an isolate that has died.
 *
 * @module
 */

import { messageOf } from "../failure.ts";
import { isCloneError } from "../snapshot.ts";
import type { OpenTransport, RemoteIsolate, StartRequest } from "./transport.ts";

/**
 * Starts an isolate. It counts as gone when a frame cannot be sent to it, and when its transport
 * cannot end it or does not say within a limit that it has ended; nothing is received of it then.
 *
 * @param limitMs how long its end may take, in milliseconds.
 * @throws what the transport throws when it cannot start it.
 */
export function startGuarded(
  transport: OpenTransport,
  request: StartRequest,
  limitMs: number,
): RemoteIsolate {
  const gone = Promise.withResolvers<string>(), ended = Promise.withResolvers<void>();
  let isGone = false;
  const remote = transport.start({
    ...request,
    receive: (frame) => isGone || request.receive(frame),
  });
  const lose = (cause: string) => {
    isGone = true;
    gone.resolve(cause);
  };
  const fail = (what: string, error: unknown) =>
    lose(`its transport cannot ${what}: ${messageOf(error)}`);
  const end = (how: "close" | "kill") => {
    try {
      remote[how]();
    } catch (error) {
      fail(`${how} it`, error);
    }
    limit(gone.promise, limitMs, () => lose(`its transport has not said so within ${limitMs} ms`));
  };
  remote.gone.then(lose, (error) => fail("tell of its end", error));
  remote.ended.then(ended.resolve, () => ended.resolve());
  return {
    gone: gone.promise,
    ended: ended.promise,
    send(frame, transfer) {
      if (isGone) return;
      try {
        remote.send(frame, transfer);
      } catch (error) {
        if (isCloneError(error)) throw error;
        fail("send", error);
        end("kill");
      }
    },
    close: () => end("close"),
    kill: () => end("kill"),
    abandon() {
      remote.abandon?.();
      limit(ended.promise, limitMs, () => ended.resolve());
    },
    ...remote.stirs && { stirs: () => remote.stirs!() },
  };
}

/** Calls `late` when `promise` is not settled within a time. */
function limit(promise: Promise<unknown>, ms: number, late: () => void): void {
  const timer = setTimeout(late, ms);
  promise.finally(() => clearTimeout(timer));
}
