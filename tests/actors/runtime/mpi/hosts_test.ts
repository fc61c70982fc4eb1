import assert from "node:assert/strict";
import { mpiTest } from "./launchers.ts";
import { canMakeHosts, makeHosts } from "./test_hosts.ts";
import { assertBitsOfWorkers, jobOf, RUNS, trainArgs } from "./train_runs.ts";

const options = { ignore: !canMakeHosts };

mpiTest("two hosts with two ranks each train with the bits of Deno workers", async (launcher) => {
  using hosts = await makeHosts();
  const delay = hosts.delays ? {} : { link: { latencyUs: 100, gigabytesPerSecond: 0.5 } };
  const before = await hosts.bytesCarried();
  await assertBitsOfWorkers(
    await hosts.run(launcher, jobOf(4, RUNS.map((run) => ({ ...run, ...delay })))),
  );
  assert.ok(await hosts.bytesCarried() - before > 500_000, "the cable has carried it");
}, options);

mpiTest("what other hosts do not reach is refused as the ranks' interface", async (launcher) => {
  using hosts = await makeHosts();
  const [one, two] = hosts.hosts;
  for (
    const [wanted, sentence] of [
      ["lo", `it must be one that other hosts reach, received 127.0.0.1 on rank 0 (${one.name}`],
      [one.interface, `received none on rank 1 (${two.name} has lo 127.0.0.1/8, ${two.interface}`],
    ] as const
  ) {
    const args = [...trainArgs({ schedule: "1f1b", workers: 2, replicas: 1 }), "--runtime", "mpi"];
    const output = await hosts.run(launcher, [2, ...args, "--mpi-interface", wanted]);
    assert.equal(output.code, 2, output.stdout + output.stderr);
    assert.equal(output.stderr.match(/^Cannot/gm)?.length, 1, output.stderr);
    assert.ok(output.stderr.includes(`Cannot use --mpi-interface ${wanted}: `), output.stderr);
    assert.ok(output.stderr.includes(sentence), output.stderr);
  }
}, options);
