/**
 * The networks of a job: at which of its addresses each rank is reached by the others.
 *
 * @module
 */

import { BlockList, isIPv4 } from "node:net";
import { JobRefusal } from "./library.ts";

/** An address of an interface, with the length of its network's prefix. */
interface InterfaceAddress {
  readonly name: string;
  /** Such as 10.1.0.2/16. */
  readonly cidr: string;
}

/** What a rank tells the others of its networks. */
export interface RankNetworks {
  /** As people call its host. */
  readonly hostname: string;
  /** Tells its host from others: ranks with the same one reach each other at 127.0.0.1. */
  readonly host: string;
  /** The interface, address or network that was asked for. */
  readonly wanted?: string | undefined;
  readonly addresses: readonly InterfaceAddress[];
}

const LOOPBACK = "127.0.0.1";

/**
 * The address at which each rank is reached.
 *
 * On one host that is 127.0.0.1. On several it is what was asked for, or the one network in which
 * every host has an address of its own: a bridge of containers, which has the same address on every
 * host, is not taken for one, nor is that of 127.0.0.1.
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

/** The address that was asked for by the name of its interface, by itself or by its network. */
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
  throw must("one that other hosts reach", `${address} on rank ${rank}`);
}

/** The one network in which every host has an address of its own, as one of rank 0's addresses. */
function sharedNetwork(ranks: readonly RankNetworks[]): string {
  const [first] = ranks as [RankNetworks];
  const shared = first.addresses.filter(({ cidr }) => {
    const found = ranks.map((own) => addressIn(own, cidr));
    const hostOf = new Map(found.map((one, rank) => [one?.cidr, ranks[rank]!.host]));
    return found.every((one, rank) => one && hostOf.get(one.cidr) === ranks[rank]!.host);
  });
  // An interface may have addresses of two versions.
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

/** An address that lies in a network, which an address with a prefix stands for. */
function addressIn({ addresses }: RankNetworks, network: string): InterfaceAddress | undefined {
  const [address, prefix] = network.split("/") as [string, string], subnet = new BlockList();
  try {
    subnet.addSubnet(address, Number(prefix), versionOf(address));
  } catch {
    return undefined; // it is no network
  }
  return addresses.find((one) => subnet.check(addressOf(one), versionOf(addressOf(one))));
}

const addressOf = ({ cidr }: InterfaceAddress) => cidr.split("/")[0]!;

const versionOf = (address: string) => isIPv4(address) ? "ipv4" : "ipv6";

const isLoopback = (address: string) => address.startsWith("127.") || address === "::1";

const described = ({ hostname, addresses }: RankNetworks) =>
  `${hostname} has ${addresses.map(({ name, cidr }) => `${name} ${cidr}`).join(", ") || "none"}`;

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
