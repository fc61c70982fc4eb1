/**
 * An isolate of code that the program did not write, from within: it gives signs, and knows no way to
 * others but by the root.
 *
 * Nothing in here protects anybody: whoever runs beside it can undo all of it. What protects is with
 * the root.
 *
 * @module
 */

// Here, before it is confined, so that loading it later needs no permission.
import "../../packages/bootstrap.ts";
import type { Observer } from "../../observer.ts";
import { type ServedIsolate, serveIsolate } from "../serve.ts";
import type { IsolateSide } from "../transport.ts";
import { isCall, type Sign } from "./signs.ts";

/** As {@linkcode serveIsolate}, with signs, and the first one at once. */
export function serveConfined(side: IsolateSide): ServedIsolate {
  let steps = 0, isAtWork = false;
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
  const giveSign = () => {
    const sign: Sign = { kind: "sign", steps, isAtWork };
    side.send(sign, []);
  };
  giveSign();
  const isolate = serveIsolate({ ...side, observer, peers: undefined });
  return {
    receive: (frame) => isCall(frame) ? giveSign() : isolate.receive(frame),
    get isDone() {
      return isolate.isDone;
    },
    finish: () => isolate.finish(),
  };
}
