/**
 * Deno workers of the program's own code that may do less than the program, where it was started so
 * that they can: Deno has an unstable option for that.
 *
 * [Note: modules of a limited worker] What a worker is made of is loaded before it is held. So its
 * first module names all that it will import, and it need not read any of them.
 *
 * @module
 */

import { grantsOf } from "../confined/grants.ts";
import { lackOfPermissions } from "../confined/worker/program_flags.ts";
import type { StartRequest } from "../transport.ts";
import { PLAIN, type WorkerKind } from "./worker.ts";

/** Whether a worker is to be limited, and can be. */
export const isLimited = ({ least }: StartRequest): boolean =>
  least !== undefined && lackOfPermissions() === undefined;

/** Such workers; each request says what it needs. */
export const LIMITED: WorkerKind = {
  ...PLAIN,
  module({ least }) {
    const imports = [...least!.modules, String(PLAIN.module)].map((module) =>
      `import ${JSON.stringify(module)};`
    );
    return new URL(`data:text/javascript,${encodeURIComponent(imports.join(""))}`);
  },
  permissions: ({ least }) => Promise.resolve({ ...grantsOf(least!.actor, least!.permissions) }),
};
