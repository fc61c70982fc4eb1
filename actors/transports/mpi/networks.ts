/**
 * Networks of a job: selects the address at which each rank is reached by the others.
 *
 * @module
 */

import { BlockList, isIPv4 } from "node:net";
import { JobRefusal } from "./library.ts";

/** An address of an interface, with the prefix length of its network. */
interface InterfaceAddress {
  readonly name: string;
  /** For example, `10.1.0.2/16`. */
  readonly cidr: string;
}

/** Networks of a rank, which it sends to the other ranks. */
export interface RankNetworks {
  /** Display name of the host. */
  readonly hostname: string;
  /** Identifies the host: ranks with the same value reach each other at 127.0.0.1. */
  readonly host: string;
  /** The interface, address or network that the user requested. */
  readonly wanted?: string | undefined;
  readonly addresses: readonly InterfaceAddress[];
}

const LOOPBACK = "127.0.0.1";

/**
 * Returns the address at which each rank is reached.
 *
 * On one host, that is 127.0.0.1. On several hosts, it is the requested one, or an address in the
 * only network in which every host has a different address. Loopback and container bridges, which
 * have the same address on every host, are excluded.
 *
 * @throws {JobRefusal} when there is no such address, or more than one such network.
 *
 * @example
 * ```ts ignore
 * const addresses = [{ name: "eth0", cidr: "10.1.0.1/16" }];
 * notifierAddresses([{ hostname: "a", host: "a", addresses }]); // 127.0.0.1
 * ```
 */
export function notifierAddresses(ranks: readonly RankNetworks[]): readonly string[] {
  const isOneHost = ranks.every(({ host }) => host === ranks[0]!.host);
  const isAsked = ranks.every(({ wanted }) => wanted !== undefined);
  const shared = isOneHost || isAsked ? undefined : sharedNetwork(ranks);
  const addresses = ranks.map((own, rank) => {
    if (own.wanted !== undefined) return addressWanted(own, own.wanted, rank, isOneHost);
    return shared === undefined ? LOOPBACK : addressOf(addressIn(own, shared)!);
  });
  const hosts = new Map<string, number>();
  for (const [rank, address] of addresses.entries()) {
    const other = hosts.get(address) ?? rank;
    hosts.set(address, other);
    if (ranks[other]!.host === ranks[rank]!.host) continue;
    throw new JobRefusal(
      `Cannot join ranks on several hosts: each host must have an address of its own, received ${address} from ranks ${other} and ${rank} (${
        described(ranks[rank]!)
      })`,
    );
  }
  return addresses;
}

/** Returns the address of a requested interface, address or network. */
function addressWanted(
  own: RankNetworks,
  wanted: string,
  rank: number,
  isOneHost: boolean,
): string {
  const found = own.addresses.find(({ name }) => name === wanted) ??
    own.addresses.find((one) => addressOf(one) === wanted) ??
    (wanted.includes("/") ? addressIn(own, wanted) : undefined);
  const must = (what: string, received: string) =>
    new JobRefusal(
      `Cannot use --mpi-interface ${wanted}: it must be ${what}, received ${received} (${
        described(own)
      })`,
    );
  if (!found) {
    throw must(
      "an interface, an address or a network of each rank",
      `none on rank ${rank}`,
    );
  }
  const address = addressOf(found);
  if (isOneHost || !isLoopback(address)) return address;
  throw must("an address that other hosts reach", `${address} on rank ${rank}`);
}

/**
 * Returns the only network in which every host has a different address, as an address of rank 0.
 */
function sharedNetwork(ranks: readonly RankNetworks[]): string {
  const [first] = ranks as [RankNetworks];
  const shared = first.addresses.filter(({ cidr }) => {
    const found = ranks.map((own) => addressIn(own, cidr));
    const hostOf = new Map(found.map((one, rank) => [one?.cidr, ranks[rank]!.host]));
    return found.every((one, rank) => one && hostOf.get(one.cidr) === ranks[rank]!.host);
  });
  // An interface may have IPv4 and IPv6 addresses.
  const names = new Set(shared.map(({ name }) => name));
  if (names.size === 1) return shared[0]!.cidr;
  const other = ranks.find(({ host }) => host !== first.host)!;
  throw new JobRefusal(
    `Cannot join ranks on several hosts: there must be one network in which every host has an address, received ${
      names.size || "none"
    } (${described(first)}; ${
      described(other)
    }); name an interface or a network with --mpi-interface`,
  );
}

/** Returns an address in a network, which is given as one of its addresses with a prefix length. */
function addressIn({ addresses }: RankNetworks, network: string): InterfaceAddress | undefined {
  const [address, prefix] = network.split("/") as [string, string], subnet = new BlockList();
  try {
    subnet.addSubnet(address, Number(prefix), versionOf(address));
  } catch {
    return undefined; // not a network
  }
  return addresses.find((one) => subnet.check(addressOf(one), versionOf(addressOf(one))));
}

const addressOf = ({ cidr }: InterfaceAddress) => cidr.split("/")[0]!;

const versionOf = (address: string) => isIPv4(address) ? "ipv4" : "ipv6";

const isLoopback = (address: string) => address.startsWith("127.") || address === "::1";

const described = ({ hostname, addresses }: RankNetworks) =>
  `${hostname} has ${addresses.map(({ name, cidr }) => `${name} ${cidr}`).join(", ") || "none"}`;

/** IPv6 link-local addresses, which are only valid with an interface number of their host. */
const LINK_LOCAL = /^fe[89ab]/i;

/** Returns the networks of this rank. @param wanted the interface, address or network requested. */
export function ownNetworks(wanted: string | undefined): RankNetworks {
  const hostname = Deno.hostname();
  const addresses = Deno.networkInterfaces()
    .filter(({ address }) => !LINK_LOCAL.test(address))
    .toSorted((a, b) => a.family.localeCompare(b.family))
    .map(({ name, cidr }) => ({ name, cidr }));
  return { hostname, host: `${hostname} ${bootId()} ${networkNamespace()}`, wanted, addresses };
}

/** Distinguishes hosts with the same name. */
const bootId = () => read(() => Deno.readTextFileSync("/proc/sys/kernel/random/boot_id").trim());

/** Distinguishes containers of a host, which have separate networks. */
const networkNamespace = () => read(() => Deno.readLinkSync("/proc/self/ns/net"));

/** Reads a value that only exists on Linux; returns "" if it is missing or cannot be read. */
function read(what: () => string): string {
  try {
    return what();
  } catch {
    return "";
  }
}
