/**
 * Code that the program did not write, in a Deno worker with permissions of its own.
 *
 * [Note: what a worker holds] It opens no file and no socket that it was not granted. But it shares
 * the process: its memory is not limited, a loop of it keeps a core for as long as the program lives,
 * and it can print, and take the locks by which the deaths of other workers are noticed. That is for
 * code that may have faults, not for code that may have intentions. And what it asks for and is denied
 * is known to it alone.
 *
 * @module
 */

import type { RemoteIsolate, TransportOptions } from "../../transport.ts";
import { openWorkers, type WorkerPermissions } from "../../worker/worker.ts";
import { withModules } from "../command.ts";
import { ConfinedIsolate, type ConfinedRequest } from "../confined.ts";
import { type Grants, grantsOf } from "../grants.ts";
import { LimitsWatch } from "../limits.ts";
import { type Call, isSign } from "../signs.ts";
import type { Workshop } from "../workshop.ts";
import { lackOfWorkers } from "./program_flags.ts";

const CALL: Call = { kind: "call" };

/**
 * Starts a worker; a process, where workers of this program cannot be confined.
 *
 * @throws {DOMException} when the first frame cannot be cloned.
 * @throws {Deno.errors.NotCapable} when it would get more permissions than this program has.
 */
export function startConfinedWorker(
  request: ConfinedRequest,
  options: TransportOptions,
  workshop: Workshop,
): RemoteIsolate {
  const { confinement, isolate, receive } = request, lack = lackOfWorkers();
  if (lack !== undefined) {
    const started = new ConfinedIsolate(request, options, workshop);
    confinement.moved("process", lack);
    return started;
  }
  const grants = grantsOf(confinement.actor, confinement.permissions);
  let watch: LimitsWatch | undefined, why: string | undefined;
  const permissions = async () => {
    const granted = await permissionsOf(request, grants, workshop);
    if (why !== undefined) return granted;
    watch = new LimitsWatch({
      limits: confinement,
      call: () => remote.send(CALL, []),
      exceed: (what) => end(what),
    });
    return granted;
  };
  const module = new URL("./entry.ts", import.meta.url);
  const kind = { module, more: () => ({ value: undefined, transfer: [] }), permissions };
  const hear = (frame: unknown) => isSign(frame) ? watch?.hear(frame) : receive(frame);
  workshop.enter(isolate);
  const remote = started(() => openWorkers(kind).start({ ...request, receive: hear }));
  const end = (reason: string) => {
    why ??= reason;
    watch?.close();
    remote.kill();
  };
  remote.ended.then(() => {
    watch?.close();
    workshop.leave(isolate);
  });
  return {
    send: (frame, transfer) => remote.send(frame, transfer),
    close() {
      watch?.close();
      remote.close();
    },
    kill: () => end("it was ended"),
    abandon: () => remote.abandon?.(),
    hasBegun: () => remote.hasBegun!(),
    stirs: () => remote.stirs!(),
    gone: remote.gone.then((cause) => why ?? cause),
    ended: remote.ended,
  };

  function started(start: () => RemoteIsolate): RemoteIsolate {
    try {
      return start();
    } catch (error) {
      workshop.leave(isolate);
      throw error;
    }
  }
}

/** What Deno lets the worker do: what was granted, and to load its own modules. */
async function permissionsOf(
  { confinement }: ConfinedRequest,
  grants: Grants,
  workshop: Workshop,
): Promise<WorkerPermissions> {
  const graph = await workshop.graphOf(confinement);
  if (graph.names.length > 0) {
    throw new TypeError(
      `Cannot load ${confinement.from}: its isolate must be "process" as it gives names a meaning of its own, received ${
        graph.names.join(", ")
      }`,
    );
  }
  return { ...withModules(grants, graph) };
}
