import assert from "node:assert/strict";
import {
  doorAddresses,
  type RankNetworks,
} from "../../../../../actors/runtime/transports/mpi/doorbell/networks.ts";

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

const asked = (wanted: string, ranks: readonly RankNetworks[]) =>
  doorAddresses(ranks.map((one) => ({ ...one, wanted })));

const TWO_NETWORKS = ranksOn(
  ["a", "eth0 10.1.0.1/16", "ib0 10.2.0.1/16"],
  ["b", "ib0 10.2.0.2/16", "eth0 10.1.0.2/16"],
);

Deno.test("ranks of one host reach each other at 127.0.0.1", () => {
  assert.deepEqual(doorAddresses(ranksOn(["a", "eth0 10.1.0.1/16"], ["a", "eth0 10.1.0.1/16"])), [
    "127.0.0.1",
    "127.0.0.1",
  ]);
});

Deno.test("ranks of several hosts take the network that all of them share", () => {
  const ranks = ranksOn(
    ["a", "docker0 172.17.0.1/16", "eth0 10.1.0.1/16", "eth0 fd00::1/64"],
    ["a", "docker0 172.17.0.1/16", "eth0 10.1.0.1/16", "eth0 fd00::1/64"],
    ["b", "docker0 172.17.0.1/16", "enp3s0 10.1.7.9/16", "enp3s0 fd00::9/64"],
  );
  assert.deepEqual(doorAddresses(ranks), ["10.1.0.1", "10.1.0.1", "10.1.7.9"]);
});

Deno.test("an interface is asked for by its name, its network or its address", () => {
  assert.deepEqual(asked("ib0", TWO_NETWORKS), ["10.2.0.1", "10.2.0.2"]);
  assert.deepEqual(asked("10.1.0.0/16", TWO_NETWORKS), ["10.1.0.1", "10.1.0.2"]);
  const own = TWO_NETWORKS.map((one, rank) => ({ ...one, wanted: `10.2.0.${rank + 1}` }));
  assert.deepEqual(doorAddresses(own), ["10.2.0.1", "10.2.0.2"]);
  assert.deepEqual(asked("fd00::/64", ranksOn(["a", "eth0 fd00::1/64"])), ["fd00::1"]);
});

Deno.test("what does not join several hosts is refused, and what there is is said", () => {
  const refused = (run: () => unknown, sentence: RegExp) =>
    assert.throws(run, { name: "JobRefusal", message: sentence });
  refused(
    () => doorAddresses(TWO_NETWORKS),
    /one network in which every host has an address, received 2 \(a has lo 127.0.0.1\/8, eth0 10.1.0.1\/16, ib0 10.2.0.1\/16; b has .*\); name an interface or a network with --mpi-interface$/,
  );
  const apart = ranksOn(["a", "eth0 10.1.0.1/24"], ["b", "eth0 10.1.1.1/24"]);
  refused(() => doorAddresses(apart), /received none/);
  refused(() => asked("lo", TWO_NETWORKS), /other hosts reach, received 127.0.0.1 on rank 0/);
  refused(() => asked("127.0.0.1", TWO_NETWORKS), /other hosts reach, received 127.0.0.1/);
  refused(() => asked("eth7", TWO_NETWORKS), /received none on rank 0 \(a has lo/);
  refused(() => asked("10.1.0.1", TWO_NETWORKS), /received none on rank 1 \(b has lo/);
  refused(() => asked("10.9.0.0/16", TWO_NETWORKS), /received none on rank 0/);
  refused(() => asked("10.1.0.0/99", TWO_NETWORKS), /received none on rank 0/);
  const bridges = ranksOn(["a", "docker0 172.17.0.1/16"], ["b", "docker0 172.17.0.1/16"]);
  refused(() => asked("docker0", bridges), /received 172.17.0.1 from ranks 0 and 1/);
  refused(() => doorAddresses(bridges), /received none/);
});
