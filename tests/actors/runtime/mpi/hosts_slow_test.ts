import assert from "node:assert/strict";
import { assertJob, jobParts, mpiTest } from "./launchers.ts";
import { canMakeHosts, makeHosts } from "./test_hosts.ts";

mpiTest("actors and trainings on two hosts behave as elsewhere", async (launcher) => {
  using hosts = await makeHosts();
  const before = await hosts.bytesCarried();
  assertJob(await hosts.run(launcher, ...jobParts("smoke")));
  assert.ok(await hosts.bytesCarried() - before > 200_000, "the cable has carried it");
}, { need: { isThere: canMakeHosts, reason: "root and iproute2, to make hosts" } });
