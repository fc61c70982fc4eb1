/**
 * The permissions of a process of the program's own code that may do less than the program: what it
 * was given, and what it takes to be one of its processes.
 *
 * [Note: what a process needs to be one] It meets the others in a private folder, over sockets whose
 * names are the numbers of their isolates. Deno grants sockets one by one, so it gets those of the root,
 * its own, and those of whoever may have been started with it; whom it cannot connect to it hears by
 * the root. Its modules are loaded before it is held, so it need not read them; a thread of its own,
 * as its watchdog is, has to.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { grantFlags, type Grants, grantsOf } from "../confined/grants.ts";
import type { Least } from "../confinement.ts";
import { selfSocket, socketPath } from "./rendezvous.ts";

/** How many isolates before and after its own it can connect to. */
const NEIGHBOURS = 128;

/** The source of the runtime, which the watchdog of the process is loaded from. */
const RUNTIME = import.meta.url.startsWith("file:")
  ? [fileURLToPath(new URL("../../", import.meta.url))]
  : [];

/**
 * The flags of such a process.
 *
 * @param directory the private folder.
 * @throws {Deno.errors.NotCapable} when it would get more than this program has.
 */
export function leastFlags(
  { actor, permissions, modules }: Least,
  directory: string,
  isolate: number,
): string[] {
  const given = grantsOf(actor, permissions);
  const grants: Grants = {
    ...given,
    read: both(given.read, [directory, ...RUNTIME]),
    write: both(given.write, [directory]),
    net: both(given.net, socketsOf(directory, isolate)),
    import: both(given.import, hostsOf([import.meta.url, ...modules])),
  };
  const loaded = modules.filter((module) => !module.startsWith("data:"));
  return [...grantFlags(grants), ...loaded.map((module) => `--preload=${module}`)];
}

function both(one: true | readonly string[], other: readonly string[]): true | readonly string[] {
  return one === true ? true : [...one, ...other];
}

/** Where code comes from that is not of files; what it imports from JSR comes from there. */
function hostsOf(modules: readonly string[]): string[] {
  const remote = modules.map((module) => new URL(module))
    .filter(({ protocol }) => protocol === "https:" || protocol === "http:")
    .map(({ protocol, hostname, port }) =>
      `${hostname}:${port || (protocol === "http:" ? 80 : 443)}`
    );
  return remote.length > 0 ? [...new Set([...remote, "jsr.io:443"])] : [];
}

function socketsOf(directory: string, isolate: number): string[] {
  if (Deno.build.os === "windows") return ["127.0.0.1"];
  const first = Math.max(1, isolate - NEIGHBOURS), count = isolate + NEIGHBOURS - first + 1;
  const near = Array.from({ length: count }, (_, n) => `${first + n}`);
  return ["0", ...near, selfSocket(isolate)].map((name) => `unix:${socketPath(directory, name)}`);
}
