/** Honest actors lose nothing when they are confined, except what the guard is there to keep. */

import assert from "node:assert/strict";
import type { AnySpec, Message, System } from "../../../../actors/runtime/mod.ts";
import { openWorkers, PLAIN } from "../../../../actors/runtime/transports/worker/worker.ts";
import { IS_DEEP } from "../../../depth.ts";
import { ASKER } from "../circle_players.ts";
import { runContract } from "../contract.ts";
import { CROSSINGS } from "../contract/isolates.ts";
import { each, type Place, register } from "../contract/suite.ts";
import type { Anybody } from "./fixtures/anybody.ts";

const FROM = import.meta.resolve("./fixtures/anybody.ts");

const CHILDREN = "its children live in its own isolate";

/** Tests that cannot hold behind a guard, and why. */
const EXCEPT = {
  "a circle of questions fails at once and is named":
    "it is found, but addresses that an actor was not given are not named to it",
  "an actor stops its child and one that is not, and hears of both": "it stops only its own actors",
  "children can be reached from outside": CHILDREN,
  "a failure of a child that is not watched fails the parent, by the name of the child": CHILDREN,
  "the loss of an isolate is a failure of the parent there is": CHILDREN,
  "children in other isolates stop when their parent's is gone": CHILDREN,
  "what cannot be spawned is refused at once": "the words list this test's own transport",
};

/** A system whose actors in `place` come from packages. */
const confining = (place: string, more: object = {}) => (system: System): System => ({
  ...system,
  spawn(spec: AnySpec, init: unknown, options) {
    if (!spec || "from" in spec || options?.isolate !== place) {
      return system.spawn(spec as AnySpec<unknown, Message>, init, options);
    }
    const anybody: Anybody = { ...spec, init };
    return system.spawn<Anybody, Message>({ from: FROM }, anybody, { ...options, ...more });
  },
} as System);

const SERVE = import.meta.resolve(
  "../../../../actors/runtime/transports/worker/serve_worker.ts",
);

/** A worker that knows no way to others but by the root. */
const STAR = new URL(`data:text/javascript,import{serveWorker}from"${SERVE}";serveWorker()`);

/** Workers with a guard: the same as in processes, for a fraction of the time. */
const GUARDED: Place = {
  isolate: "guarded",
  transport: {
    ...{ name: "guarded", sharesMemory: false, canKill: false, limitsMemory: false },
    confines: true,
    open: () => openWorkers({ ...PLAIN, module: STAR }),
  },
  through: confining("guarded"),
  except: EXCEPT,
};

runContract(GUARDED);

register(
  GUARDED,
  each(["guarded", "local"], (isolate) => [
    `a circle of questions over ${isolate} is found, and strangers in it are not named`,
    async ({ system }) => {
      const spawn = (id: string, isolate: string) =>
        system.spawn(ASKER, undefined, { id, isolate });
      const [a, b, c] = [spawn("a", "guarded"), spawn("b", isolate), spawn("c", "guarded")];
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

const PROCESS: Place = {
  isolate: "process",
  // Players are read from where they are, and some leave notes.
  through: confining("process", { permissions: { read: true, write: true } }),
  except: EXCEPT,
};

if (IS_DEEP) runContract(PROCESS);
else register(PROCESS, CROSSINGS);
