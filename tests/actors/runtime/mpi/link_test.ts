/** The links between ranks: doors, networks, packets and the divisions for sums. */

import assert from "node:assert/strict";
import type { Packet } from "../../../../actors/transports/mpi/wire.ts";
import { columnRounds, Transfers } from "../../../../actors/transports/mpi/transfers.ts";
import {
  connectTo,
  type Notifier,
  notifierAddresses,
  openNotifier,
  type RankNetworks,
  SECRET_BYTES,
} from "../../../../actors/transports/mpi/networks.ts";
import {
  isFirstOfHost,
  launchedRanks,
  loadMpi,
} from "../../../../actors/transports/mpi/library.ts";
import {
  type LinkParts,
  Outgoing,
  receivePackets,
} from "../../../../actors/transports/mpi/link.ts";
import { assertRefused } from "../../../kernels/graph/refused.ts";

const SECRET = Uint8Array.from({ length: SECRET_BYTES }, (_, i) => i + 1);

/** The door of rank 3, and the ranks that were let in. */
function doorOf3(greetingMs?: number) {
  const guests: number[] = [], conns: Deno.Conn[] = [];
  const come = (conn: Deno.Conn, rank: number) => void [guests.push(rank), conns.push(conn)];
  const door = openNotifier("127.0.0.1", come, greetingMs);
  door.admit(3, SECRET);
  return {
    address: door.address,
    guests,
    [Symbol.dispose]() {
      door.close();
      for (const conn of conns) conn.close();
    },
  };
}

/** Connects without the secret and waits to be refused; returns the number of bytes received. */
async function knock(address: Notifier["address"], says: Uint8Array): Promise<number> {
  using conn = await Deno.connect(address);
  await conn.write(says);
  return await conn.read(new Uint8Array(1)).catch(() => null) ?? 0;
}

const asRank = async (to: number, { address }: { address: Notifier["address"] }, secret = SECRET) =>
  (await connectTo(address, 5, to, secret)).close();

Deno.test("a rank that knows the secret is let in; strangers and half greetings are sent away", async () => {
  using door = doorOf3(200);
  for (const at of [0, 31, 32, 63]) {
    const answer = at < 32 ? /the connection was closed|reset/ : /must know the secret of the job/;
    await assert.rejects(asRank(3, door, SECRET.with(at, 99)), answer);
  }
  door.guests.length = 0;
  await assert.rejects(asRank(4, door), /the connection was closed|reset/);
  for (const says of [new Uint8Array(4096), SECRET.subarray(0, 20), new Uint8Array()]) {
    assert.equal(await knock(door.address, says), 0);
  }
  assert.deepEqual(door.guests, []);
  await asRank(3, door);
  assert.deepEqual(door.guests, [5]);
});

Deno.test("a right greeting that comes byte by byte is too slow", async () => {
  using door = doorOf3(200);
  using conn = await Deno.connect(door.address);
  const end = conn.read(new Uint8Array(1)).catch(() => null);
  const greeting = [...SECRET.subarray(0, 32), 0, 0, 0, 5, 0, 0, 0, 3];
  const drip = setInterval(
    () => greeting.length > 0 && conn.write(Uint8Array.of(greeting.shift()!)).catch(() => {}),
    20,
  );
  assert.equal(await end, null);
  clearInterval(drip);
  assert.deepEqual(door.guests, []);
});

Deno.test("a flood of silent guests is bounded, and keeps no rank out", async () => {
  using door = doorOf3(60_000);
  let isOver = false, sentAway = 0;
  const crowd = await Promise.all(Array.from({ length: 300 }, () => Deno.connect(door.address)));
  for (const conn of crowd) {
    conn.read(new Uint8Array(1)).catch(() => null).then(() => isOver || sentAway++);
  }
  await asRank(3, door);
  while (sentAway < 300 - 64) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.ok(sentAway <= 300 - 63, `${sentAway}`);
  isOver = true;
  for (const conn of crowd) conn.close();
});

Deno.test("an announcement that is no packet is refused before memory is allocated for it", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const packets = [
    [[1, 2 ** 52, 0], /from rank 5: the body it announces must be .* received 4503599627370496/],
    [[1, 8, 2 ** 40], /count of buffers/],
    [[1, NaN, 0], /body.*received NaN/],
    [[-1, 8, 0], /isolate/],
    [[1, 0, 1, 2 ** 50], /buffer/],
  ] as const;
  for (const [numbers, sentence] of packets) {
    using conn = await Deno.connect({ hostname: "127.0.0.1", port: listener.addr.port });
    using received = await listener.accept();
    await conn.write(new Uint8Array(Float64Array.from(numbers).buffer));
    const parts = { mpi: {}, transfers: {} } as LinkParts; // nothing of it is used
    await assert.rejects(receivePackets(parts, 3, 5, received, () => assert.fail()), sentence);
  }
});

/** MPI within one process: the n-th message is for the n-th receive; earlier ones take longer. */
function fakeMpi() {
  const sent: Uint8Array[] = [], received: { into: Uint8Array; testsLeft: number }[] = [];
  const receives = new Map<object, number>();
  let isOver = false;
  const requestOf = (bytes: Uint8Array<ArrayBuffer>) => ({ bytes, handle: new Uint8Array(4) });
  return {
    sent,
    end: () => isOver = true,
    send(bytes: Uint8Array<ArrayBuffer>) {
      sent.push(bytes.slice());
      return requestOf(bytes);
    },
    receive(into: Uint8Array<ArrayBuffer>) {
      const request = requestOf(into), testsLeft = 100 - 20 * received.length;
      receives.set(request, received.push({ into, testsLeft }) - 1);
      return request;
    },
    test(request: object) {
      const nth = receives.get(request);
      if (nth === undefined) return true;
      const one = received[nth]!, bytes = sent[nth];
      if (!bytes && isOver) throw new Error("MPI waits for a message that was never sent");
      if (!bytes || --one.testsLeft > 0) return false;
      assert.equal(bytes.length, one.into.length);
      one.into.set(bytes);
      return true;
    },
    advance() {},
  };
}

const LARGE = 16_384;

/** The contents of a packet at this moment, each buffer as its length and the values in it. */
const summaryOf = ({ to, body, buffers }: Packet) => ({
  ...{ to, body: [...body] },
  buffers: buffers.map((buffer) => `${buffer.length} bytes of ${[...new Set(buffer)]}`),
});

/** The sizes of the buffers of some packets. */
const PARCELS = [
  ...[[LARGE], [], [LARGE - 1, 0, LARGE + 1, 5], [3], [LARGE, 3 * LARGE, 1], [LARGE - 1]],
];

Deno.test("packets arrive whole and in order, and both ends agree on the buffers that MPI carries", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const accepted = listener.accept();
  const near = await Deno.connect({ hostname: "127.0.0.1", port: listener.addr.port });
  using far = await accepted;
  const failed = Promise.withResolvers<never>(), mpi = fakeMpi();
  const transfers = new Transfers(mpi, failed.reject), got: unknown[] = [];
  const parts: LinkParts = { mpi, transfers };
  const outgoing = new Outgoing(parts, 1, Promise.resolve(near), failed.reject);
  const received = receivePackets(parts, 1, 0, far, (packet) => got.push(summaryOf(packet)));
  let value = 0;
  const packets = PARCELS.map((sizes, nth) => ({
    to: { rank: 1, isolate: nth + 1 },
    body: Uint8Array.of(nth, ++value),
    buffers: sizes.map((size) => new Uint8Array(size).fill(++value)),
  }));
  const large = PARCELS.flat().filter((size) => size >= LARGE);
  for (const packet of structuredClone(packets)) outgoing.send(packet);
  assert.deepEqual(mpi.sent.map(({ length }) => length), large);
  const all = async () => {
    await outgoing.finish();
    near.close();
    mpi.end();
    await received;
    await transfers.settled();
  };
  await Promise.race([all(), failed.promise]);
  transfers.close();
  assert.deepEqual(got, packets.map(summaryOf));
  outgoing.send(packets[0]!);
  const refusal = /^Error: Cannot send to rank 1: the connection .*, received /;
  await assert.rejects(failed.promise, refusal);
});

/** Ranks on hosts, in order; the interfaces of each host as name and address. */
const ranksOn = (...hosts: readonly (readonly [host: string, ...interfaces: string[]])[]) =>
  hosts.map(([host, ...interfaces]): RankNetworks => ({
    hostname: host,
    host,
    addresses: ["lo 127.0.0.1/8", ...interfaces].map((one) => {
      const [name, cidr] = one.split(" ") as [string, string];
      return { name, cidr };
    }),
  }));

/** The addresses of doors where all ranks ask for an interface, or none does. */
const asked = (wanted: string | undefined, ranks: readonly RankNetworks[]) =>
  notifierAddresses(ranks.map((one) => wanted ? { ...one, wanted } : one));

const ONE_HOST = ranksOn(["a", "eth0 10.1.0.1/16"], ["a", "eth0 10.1.0.1/16"]);
const TWO_NETWORKS = ranksOn(
  ["a", "eth0 10.1.0.1/16", "ib0 10.2.0.1/16"],
  ["b", "ib0 10.2.0.2/16", "eth0 10.1.0.2/16"],
);
const BRIDGES = ranksOn(["a", "docker0 172.17.0.1/16"], ["b", "docker0 172.17.0.1/16"]);

Deno.test("ranks reach each other on their host, in the network that all share, or that is chosen", () => {
  assert.deepEqual(notifierAddresses(ONE_HOST), ["127.0.0.1", "127.0.0.1"]);
  const shared = ranksOn(
    ["a", "docker0 172.17.0.1/16", "eth0 10.1.0.1/16", "eth0 fd00::1/64"],
    ["a", "docker0 172.17.0.1/16", "eth0 10.1.0.1/16", "eth0 fd00::1/64"],
    ["b", "docker0 172.17.0.1/16", "enp3s0 10.1.7.9/16", "enp3s0 fd00::9/64"],
  );
  assert.deepEqual(notifierAddresses(shared), ["10.1.0.1", "10.1.0.1", "10.1.7.9"]);
  assert.deepEqual(asked("ib0", TWO_NETWORKS), ["10.2.0.1", "10.2.0.2"]);
  assert.deepEqual(asked("10.1.0.0/16", TWO_NETWORKS), ["10.1.0.1", "10.1.0.2"]);
  const own = TWO_NETWORKS.map((one, rank) => ({ ...one, wanted: `10.2.0.${rank + 1}` }));
  assert.deepEqual(notifierAddresses(own), ["10.2.0.1", "10.2.0.2"]);
  assert.deepEqual(asked("fd00::/64", ranksOn(["a", "eth0 fd00::1/64"])), ["fd00::1"]);
});

Deno.test("networks that do not join several hosts are refused, and the existing networks are listed", () =>
  assertRefused("networks_of_ranks", [
    () => asked(undefined, TWO_NETWORKS),
    () => asked(undefined, ranksOn(["a", "eth0 10.1.0.1/24"], ["b", "eth0 10.1.1.1/24"])),
    () => asked(undefined, BRIDGES),
    () => asked("lo", TWO_NETWORKS),
    () => asked("127.0.0.1", TWO_NETWORKS),
    () => asked("eth7", TWO_NETWORKS),
    () => asked("10.1.0.1", TWO_NETWORKS),
    () => asked("10.9.0.0/16", TWO_NETWORKS),
    () => asked("10.1.0.0/99", TWO_NETWORKS),
    () => asked("docker0", BRIDGES),
  ]));

Deno.test("columns without a common rank share a division of all ranks", () => {
  assert.deepEqual(columnRounds([[0, 2], [1, 3]]), [[0, 1]]);
  // Chimera on four workers: every rank holds two stages.
  assert.deepEqual(columnRounds([[0, 3], [1, 2], [2, 1], [3, 0]]), [[0, 1], [2, 3]]);
  assert.deepEqual(columnRounds([[0, 1], [1, 2], [2, 3], [0, 0]]), [[0, 2], [1]]);
});

Deno.test("a file that is no library of MPI is refused with the package that has one", () => {
  const path = new URL(import.meta.url).pathname;
  const must = `Cannot use MPI on ${Deno.hostname()}: the launcher is MPICH, whose library must be`;
  const install = "; on Debian, apt-get install libmpich12, or name another with --mpi-library";
  assert.throws(() => loadMpi(path, "mpich"), ({ message }: Error) => {
    assert.ok(message.startsWith(must) && message.endsWith(install), message);
    return message.includes(`received ${path}, which does not load (`);
  });
});

Deno.test("a rank reads its number from the variables of its launcher, also within a job of Slurm", () => {
  const slurm = { SLURM_PROCID: "3", SLURM_STEP_NUM_TASKS: "8" };
  const of = (env: Record<string, string>) => launchedRanks((name) => env[name]);
  const openmpi = { OMPI_COMM_WORLD_RANK: "1", OMPI_COMM_WORLD_SIZE: "2" };
  assert.deepEqual(of(slurm), { abi: "mpich", rank: 3, size: 8 });
  assert.deepEqual(of({ ...slurm, PMIX_RANK: "3" }), { abi: "openmpi", rank: 3, size: 8 });
  const hydra = of({ ...slurm, PMI_RANK: "1", PMI_SIZE: "2" });
  assert.deepEqual(hydra, { abi: "mpich", rank: 1, size: 2 });
  const launched = of({ ...slurm, PMIX_RANK: "1", ...openmpi });
  assert.deepEqual(launched, { abi: "openmpi", rank: 1, size: 2 });
  // The shell of a job of Slurm is no rank.
  assert.equal(of({ SLURM_PROCID: "0", SLURM_NTASKS: "8" }), undefined);
  // The count of ranks that share cores.
  const ofFour = { OMPI_COMM_WORLD_LOCAL_SIZE: "4" };
  const shares = [
    [{ SLURM_STEP_TASKS_PER_NODE: "2(x3),1" }, 2],
    [{ MPI_LOCALNRANKS: "3" }, 3],
    [ofFour, 4],
    [{ ...ofFour, OMPI_MCA_orte_bound_at_launch: "1" }, 1],
  ] as const;
  for (const [env, sharing] of shares) assert.equal(of({ ...slurm, ...env })!.sharing, sharing);
  const firsts = [{}, { MPI_LOCALRANKID: "0" }, { SLURM_LOCALID: "1" }]
    .map((env: Record<string, string>) => isFirstOfHost((name) => env[name]));
  assert.deepEqual(firsts, [true, true, false]);
});
