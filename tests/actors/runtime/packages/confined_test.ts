/** Honest actors lose nothing when they are confined, but for what a guard is there for. */

import assert from "node:assert/strict";
import type { AnySpec, Message, System } from "../../../../actors/runtime/mod.ts";
import { ASKER } from "../circle_players.ts";
import { runContract } from "../contract.ts";
import { each, type Place, register } from "../contract/suite.ts";
import { TCP_TRANSPORT } from "../tcp_transport.ts";
import type { Anybody } from "./fixtures/anybody.ts";

const CONFINED = "confined", FROM = import.meta.resolve("./fixtures/anybody.ts");

const CHILDREN = "its children live in its own isolate";

/** What a guard is there for. */
const EXCEPT = {
  "a circle of questions fails at once and is named":
    "it is found, but whose addresses it was not given are not named to it",
  "an actor stops its child and one that is not, and hears of both":
    "it stops nobody but its own actors",
  "children can be reached from outside": CHILDREN,
  "a failure of a child that nobody watches fails the parent, by its own name": CHILDREN,
  "the loss of an isolate is a failure of the parent there is": CHILDREN,
  "children in other isolates stop when their parent's is gone": CHILDREN,
  "what cannot be spawned is refused at once": "the words list this test's own transport",
};

/** A system whose actors there come from packages. */
function confining(system: System): System {
  return {
    ...system,
    spawn(spec: AnySpec, init: unknown, options) {
      if ("from" in spec || options.isolate !== CONFINED) {
        return system.spawn(spec as AnySpec<unknown, Message>, init, options);
      }
      const anybody: Anybody = { ...spec, init };
      return system.spawn<Anybody, Message>({ from: FROM }, anybody, options);
    },
  } as System;
}

const PLACE: Place = {
  isolate: CONFINED,
  transport: { ...TCP_TRANSPORT, name: CONFINED, confines: true },
  through: confining,
  except: EXCEPT,
};

runContract(PLACE);

register(
  PLACE,
  each([CONFINED, "local"], (isolate) => [
    `a circle of questions over ${isolate} is found, and strangers in it are not named`,
    async ({ system }) => {
      const spawn = (id: string, isolate: string) =>
        system.spawn(ASKER, undefined, { id, isolate });
      const [a, b, c] = [spawn("a", CONFINED), spawn("b", isolate), spawn("c", CONFINED)];
      const route = [b, c, a];
      assert.equal(
        await system.ask(a, { type: "Pass", route }, { timeoutMs: Infinity }),
        "c failed",
      );
      assert.deepEqual(await system.ask(c, { type: "Notes" }), [
        'TypeError: Cannot ask "a" for "Pass": "c" would wait for "a", which waits for ' +
        '"another actor", which waits for "c"',
      ]);
    },
  ]),
);
