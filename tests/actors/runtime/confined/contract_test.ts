/** The suite of all transports, for actors of packages in confined processes. */

import type { AnySpec, Message, System } from "../../../../actors/runtime/mod.ts";
import { runContract } from "../contract.ts";
import type { Anybody } from "../packages/fixtures/anybody.ts";

const FROM = import.meta.resolve("../packages/fixtures/anybody.ts");

const CHILDREN = "its children live in its own isolate";

/** What the guard of a confined actor is there for. */
const EXCEPT = {
  "a circle of questions fails at once and is named":
    "whose addresses it was not given are not named to it",
  "an actor stops its child and one that is not, and hears of both":
    "it stops nobody but its own actors",
  "children can be reached from outside": CHILDREN,
  "a failure of a child that nobody watches fails the parent, by its own name": CHILDREN,
  "the loss of an isolate is a failure of the parent there is": CHILDREN,
  "children in other isolates stop when their parent's is gone": CHILDREN,
};

/** A system whose processes hold actors of packages. */
function confining(system: System): System {
  return {
    ...system,
    spawn(spec: AnySpec, init: unknown, options) {
      if (!spec || options?.isolate !== "process") {
        return system.spawn(spec as AnySpec<unknown, Message>, init, options);
      }
      const anybody = { ...spec, init } as Anybody;
      // Players are read from where they are, and some leave notes.
      const permissions = { read: true, write: true };
      return system.spawn<Anybody, Message>({ from: FROM }, anybody, { ...options, permissions });
    },
  } as System;
}

runContract({ isolate: "process", through: confining, except: EXCEPT });
