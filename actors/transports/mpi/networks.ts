/**
 * Networks of this host, and notifications of messages over them.
 *
 * [Note: untrusted connections] Any process that reaches the listener's port can connect. A
 * connection is closed if it does not send the job's secret in time. The number of unauthenticated
 * connections is limited: another one closes the oldest. So they cost a bounded number of small
 * buffers and cannot keep a rank out: a rank sends the secret immediately, and connects again if
 * its connection was closed. The secret only authenticates ranks; as in MPI itself, data is not
 * encrypted.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { delay } from "@std/async/delay";
import { BlockList, isIPv4 } from "node:net";
import { resultOr } from "../../runtime/types.ts";
import { readAll, writeAll } from "../stream.ts";
import { JobRefusal, type Mpi } from "./library.ts";
import { gatherValues } from "./wire.ts";

/** An address of an interface, with the prefix length of its network: `10.1.0.2/16`. */
type InterfaceAddress = Pick<Deno.NetworkInterfaceInfo, "name" | "cidr">;

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
    const other = hosts.getOrInsert(address, rank);
    if (ranks[other]!.host === ranks[rank]!.host) continue;
    const received = `${address} from ranks ${other} and ${rank} (${described(ranks[rank]!)})`;
    throw new JobRefusal(
      `Cannot join ranks on several hosts: each host must have an address of its own, received ${received}`,
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
  const refuse = (right: string, what: string) => {
    const received = `${what} on rank ${rank} (${described(own)})`;
    const must = `it must be ${right}, received ${received}`;
    return new JobRefusal(`Cannot use --mpi-interface ${wanted}: ${must}`);
  };
  if (!found) throw refuse("an interface, an address or a network of each rank", "none");
  const address = addressOf(found);
  if (isOneHost || !isLoopback(address)) return address;
  throw refuse("an address that other hosts reach", address);
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
  const received = `${names.size || "none"} (${described(first)}; ${described(other)})`;
  throw new JobRefusal(
    `Cannot join ranks on several hosts: there must be one network in which every host has an address, received ${received}; name an interface or a network with --mpi-interface`,
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
    .toSorted((a, b) => Number(a.family === "IPv6") - Number(b.family === "IPv6"))
    .map(({ name, cidr }) => ({ name, cidr }));
  return { hostname, host: `${hostname} ${bootId()} ${networkNamespace()}`, wanted, addresses };
}

/** Distinguishes hosts with the same name. */
const bootId = () => read(() => Deno.readTextFileSync("/proc/sys/kernel/random/boot_id").trim());

/** Distinguishes containers of a host, which have separate networks. */
const networkNamespace = () => read(() => Deno.readLinkSync("/proc/self/ns/net"));

/** Reads a value that only exists on Linux; returns "" if it is missing or cannot be read. */
const read = (what: () => string): string => resultOr(what, "");

/** Bytes of the client's half of the secret, and of the listener's half. */
const WORD_BYTES = 32;

/** Bytes of the job's secret: both halves. */
export const SECRET_BYTES = 2 * WORD_BYTES;

/** Bytes of a greeting: the client's half of the secret, its rank, and the rank it connects to. */
const GREETING_BYTES = WORD_BYTES + 8;

/** Milliseconds for a client to send its greeting, and for the listener to reply. */
const GREETING_MS = 5000;

/** Maximum number of connections that have not been authenticated. */
const MAX_GUESTS = 64;

/**
 * Milliseconds to wait when the system accepts no connection, for example without file descriptors.
 */
const REST_MS = 50;

/** A listener for connections of other ranks. */
export type Notifier = ReturnType<typeof openNotifier>;

/**
 * Opens a listener.
 *
 * @param hostname the address to listen on.
 * @param ring called with each connection of another rank.
 * @param greetingMs milliseconds for a client to send its greeting.
 */
export function openNotifier(
  hostname: string,
  ring: (conn: Deno.TcpConn, rank: number) => void,
  greetingMs = GREETING_MS,
) {
  const listener = Deno.listen({ hostname, port: 0 }), guests = new Set<Deno.TcpConn>();
  const admitted = Promise.withResolvers<{ rank: number; secret: Uint8Array }>();
  let isOpen = true;
  const dismiss = (conn: Deno.TcpConn) => {
    if (guests.delete(conn)) conn.close();
  };
  const greet = async (conn: Deno.TcpConn) => {
    guests.add(conn);
    if (guests.size > MAX_GUESTS) dismiss(guests.values().next().value!);
    const timer = setTimeout(() => dismiss(conn), greetingMs);
    try {
      conn.setNoDelay(true);
      const greeting = await readAll(conn, GREETING_BYTES),
        { rank, secret } = await admitted.promise;
      const numbers = new DataView(greeting.buffer, WORD_BYTES);
      if (!isSame(greeting, secret.subarray(0, WORD_BYTES))) return;
      if (numbers.getInt32(4) !== rank) return;
      await writeAll(conn, secret.subarray(WORD_BYTES));
      if (guests.delete(conn)) ring(conn, numbers.getInt32(0));
    } catch {
      // The client has disconnected or was disconnected.
    } finally {
      clearTimeout(timer);
      dismiss(conn);
    }
  };
  const receive = async () => {
    while (isOpen) {
      try {
        void greet(await listener.accept());
      } catch {
        if (isOpen) await delay(REST_MS);
      }
    }
  };
  void receive();
  return {
    address: { hostname, port: (listener.addr as Deno.NetAddr).port },
    /** Starts to accept clients that know the secret. */
    admit: (rank: number, secret: Uint8Array) => admitted.resolve({ rank, secret }),
    close() {
      isOpen = false;
      listener.close();
      for (const conn of guests) dismiss(conn);
    },
  };
}

/**
 * Connects to the listener of a rank.
 *
 * @param from the rank that connects.
 * @throws {Error} when the connection fails, or the listener does not know the secret.
 */
export async function connectTo(
  { hostname, port }: Notifier["address"],
  from: number,
  to: number,
  secret: Uint8Array,
): Promise<Deno.TcpConn> {
  const conn = await deadline(Deno.connect({ hostname, port }), GREETING_MS);
  try {
    conn.setNoDelay(true);
    const greeting = new Uint8Array(GREETING_BYTES), numbers = new DataView(greeting.buffer);
    greeting.set(secret.subarray(0, WORD_BYTES));
    numbers.setInt32(WORD_BYTES, from);
    numbers.setInt32(WORD_BYTES + 4, to);
    await writeAll(conn, greeting);
    const answer = await deadline(readAll(conn, WORD_BYTES), GREETING_MS);
    if (!isSame(answer, secret.subarray(WORD_BYTES))) {
      throw new Error("the peer must know the secret of the job");
    }
    return conn;
  } catch (error) {
    conn.close();
    throw error;
  }
}

/** Compares bytes with a word in constant time, which reveals nothing about the word. */
const isSame = (bytes: Uint8Array, word: Uint8Array) =>
  word.reduce((sum, byte, i) => sum | (byte ^ bytes[i]!), 0) === 0;

/** Maximum attempts to connect to a host that refuses, and milliseconds between two attempts. */
const MAX_REFUSALS = 5;
const WAIT_MS = 500;

/** Milliseconds in which a rank must answer. On a busy machine, starting takes many seconds. */
const REACH_MS = 60_000;

/**
 * Opens the listener of this rank; every rank calls it.
 *
 * @param ring called with each connection of another rank.
 * @throws {JobRefusal} when ranks cannot reach each other.
 */
export function exchangeNotifiers(
  mpi: Pick<Mpi, "rank" | "gather">,
  networks: RankNetworks,
  ring: (conn: Deno.TcpConn, rank: number) => void,
) {
  const hostname = notifierAddresses(gatherValues(mpi, networks))[mpi.rank]!;
  const door = openNotifier(hostname, ring);
  const addresses = gatherValues(mpi, door.address);
  const own = new Uint8Array(SECRET_BYTES);
  if (mpi.rank === 0) crypto.getRandomValues(own);
  const secret = mpi.gather(own).slice(0, SECRET_BYTES);
  door.admit(mpi.rank, secret);
  return {
    /** Connects to the listener of a rank. @throws {Error} when all attempts fail. */
    async connect(rank: number): Promise<Deno.TcpConn> {
      const address = addresses[rank]!, end = performance.now() + REACH_MS;
      for (let attempt = 1;; attempt++) {
        try {
          return await connectTo(address, mpi.rank, rank, secret);
        } catch (cause) {
          const isRefused = cause instanceof Deno.errors.ConnectionRefused;
          if (isRefused ? attempt >= MAX_REFUSALS : performance.now() > end) {
            const cannot = `Cannot reach rank ${rank} from rank ${mpi.rank}`;
            const must = `${address.hostname}:${address.port} must be open to it`;
            const received = `"${(cause as Error).message}"`;
            const remedy =
              "open the firewall between the hosts, or name another interface with --mpi-interface";
            throw new Error(`${cannot}: ${must}, received ${received}; ${remedy}`, { cause });
          }
          await delay(WAIT_MS);
        }
      }
    },
    /** Closes the listener. */
    close: door.close,
  };
}
