import assert from "node:assert/strict";
import { assertJob, jobParts, mpiTest, trainArgs } from "./launchers.ts";
import { canMakeHosts, makeHosts } from "./test_hosts.ts";

const options = { need: { isThere: canMakeHosts, reason: "root and iproute2, to make hosts" } };

mpiTest("actors and trainings on two hosts do what they do elsewhere", async (launcher) => {
  using hosts = await makeHosts();
  const before = await hosts.bytesCarried();
  assertJob(await hosts.run(launcher, ...jobParts("hosts")));
  assert.ok(await hosts.bytesCarried() - before > 500_000, "the cable has carried it");
}, options);

mpiTest("an interface that some host lacks is refused", async (launcher) => {
  using hosts = await makeHosts();
  const [one, two] = hosts.hosts, wanted = one.interface;
  const args = [...trainArgs({ schedule: "1f1b", workers: 2 }), "--runtime", "mpi"];
  const output = await hosts.run(launcher, [2, ...args, "--mpi-interface", wanted]);
  assert.equal(output.code, 2, output.stdout + output.stderr);
  assert.equal(output.stderr.match(/^Cannot/gm)?.length, 1, output.stderr);
  assert.ok(output.stderr.includes(`Cannot use --mpi-interface ${wanted}: `), output.stderr);
  const has = `received none on rank 1 (${two.name} has lo 127.0.0.1/8, ${two.interface}`;
  assert.ok(output.stderr.includes(has), output.stderr);
}, options);
