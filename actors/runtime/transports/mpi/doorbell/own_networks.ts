/**
 * The networks of this machine, as a rank tells others of them.
 *
 * @module
 */

import type { RankNetworks } from "./networks.ts";

/** Addresses that mean nothing without the number of their interface, which others do not know. */
const LINK_LOCAL = /^fe[89ab]/i;

/** @param wanted the interface, address or network that was asked for. */
export function ownNetworks(wanted: string | undefined): RankNetworks {
  const hostname = Deno.hostname();
  const addresses = Deno.networkInterfaces()
    .filter(({ address }) => !LINK_LOCAL.test(address))
    .toSorted((a, b) => a.family.localeCompare(b.family))
    .map(({ name, cidr }) => ({ name, cidr }));
  return { hostname, host: `${hostname} ${bootId()} ${networkNamespace()}`, wanted, addresses };
}

/** Two hosts may have one name. */
const bootId = () => read(() => Deno.readTextFileSync("/proc/sys/kernel/random/boot_id").trim());

/** Containers of one host have networks of their own. */
const networkNamespace = () => read(() => Deno.readLinkSync("/proc/self/ns/net"));

/** What only Linux tells, and only a program with permission to read it. */
function read(what: () => string): string {
  try {
    return what();
  } catch {
    return "";
  }
}
