/**
 * Two hosts for a test: separate namespaces, each with a network, a name and an interface, joined by a
 * cable, as `ip netns` makes them for root.
 */

import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import type { Outcome } from "../../../console/command.ts";
import { commandsOf, type Launcher, type Part, runCommand } from "./launchers.ts";

/** A host. */
interface TestHost {
  readonly name: string;
  readonly interface: string;
  readonly address: string;
}

/** Both of them. */
export interface TestHosts extends Disposable {
  /** Runs a job whose ranks are spread evenly over the hosts, the first of them on the first. */
  run(launcher: Launcher, ...parts: readonly Part[]): Promise<Outcome>;
  /** Bytes that the cable has carried to the second host. */
  bytesCarried(): Promise<number>;
}

const isDone = (command: string, ...args: string[]) =>
  new Deno.Command(command, { args, stderr: "null", stdout: "null" }).outputSync().success;

const textOf = (command: string, ...args: string[]) =>
  new TextDecoder().decode(new Deno.Command(command, { args }).outputSync().stdout);

const must = (...args: string[]) => assert.ok(isDone("ip", ...args), `ip ${args.join(" ")}`);

/** True if this machine allows creating hosts. */
export const canMakeHosts = ((): boolean => {
  const name = `troupe-${Deno.pid}`;
  try {
    return isDone("ip", "netns", "add", name) && isDone("ip", "netns", "del", name);
  } catch {
    return false;
  }
})();

/** Runs a command as if on the host with this address: the launchers' replacement of `ssh`. */
const SHELL = (hosts: readonly TestHost[]) =>
  `#!/bin/sh
while [ "\${1#-}" != "$1" ]; do shift; done
case $1 in
${hosts.map(({ address, name }) => `${address}) host=${name} ;;`).join("\n")}
esac
shift
exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"
`;

/** Creates the hosts; disposing removes them. */
export async function makeHosts(): Promise<TestHosts> {
  const hostOf = (n: number): TestHost => ({
    name: `troupe-${Deno.pid}-${n}`,
    interface: `veth${n}`,
    address: `10.77.0.${n}`,
  });
  const hosts = [hostOf(1), hostOf(2)] as const, [one, two] = hosts;
  const shell = Deno.makeTempFileSync();
  Deno.writeTextFileSync(shell, SHELL(hosts));
  Deno.chmodSync(shell, 0o755);
  for (const { name } of hosts) must("netns", "add", name);
  const ends = hosts.map((one) => ["name", one.interface, "netns", one.name]);
  must("link", "add", ...ends[0]!, "type", "veth", "peer", ...ends[1]!);
  for (const { name, interface: device, address } of hosts) {
    must("-n", name, "address", "add", `${address}/24`, "dev", device);
    for (const each of ["lo", device]) must("-n", name, "link", "set", each, "up");
  }
  for (const { name } of hosts) {
    // UCX takes a device that is up, which the kernel may say a second late.
    while (!textOf("ip", "-n", name, "link", "show", "up", "type", "veth").includes("state UP")) {
      await delay(20);
    }
  }
  const runOn = ({ address }: TestHost, ...command: string[]) =>
    // As ssh does: the words of the command are joined.
    runCommand([shell, address, ...command.map((word) => `'${word}'`)]);
  for (const { name, interface: device } of hosts) {
    const slow = `qdisc add dev ${device} root netem delay 100us`.split(" ");
    isDone("tc", "-n", name, ...slow);
  }
  return {
    run({ command, onHosts }, ...parts) {
      const ranks = parts.reduce((sum, [count]) => sum + count, 0) / 2;
      const all = hosts.map(({ address }) => `${address}:${ranks}`).join(",");
      // MPICH transfers over the given device, which has a different name on each host.
      const device = 'UCX_TLS=tcp,self UCX_NET_DEVICES=$(ls /sys/class/net | grep veth) "$@"';
      const commands = commandsOf(parts, ["sh", "-c", device, "-"]);
      return runOn(one, command, ...onHosts(all, shell), ...commands);
    },
    async bytesCarried() {
      const path = `/sys/class/net/${two.interface}/statistics/rx_bytes`;
      return Number((await runOn(two, "cat", path)).stdout);
    },
    [Symbol.dispose]() {
      for (const { name } of hosts) must("netns", "del", name);
      Deno.removeSync(shell);
    },
  };
}
