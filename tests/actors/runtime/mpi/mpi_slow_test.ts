import assert from "node:assert/strict";
import { assertJob, jobParts, mpiTest, ON_EACH, runJob } from "./launchers.ts";

const COMM = import.meta.resolve("../../../../actors/transports/mpi/comm.ts");

/** Lets an isolate join after packets for it have arrived; prints the packets, then leaves. */
const EARLY = `import { openComm, openFrames } from "${COMM}";
const echo = Promise.withResolvers(), got = [];
const comm = await openComm({
  abi: "PMI_RANK" in Deno.env.toObject() ? "mpich" : "openmpi", ranks: 1, joinMs: 60_000, facts: {},
  receive: echo.resolve, failed: echo.reject,
});
for (const word of ["first", "second"]) comm.frames.send({ rank: 0, isolate: 7 }, word, []);
comm.frames.send({ rank: 0, isolate: 0 }, "echo", []);
await echo.promise;
const frames = openFrames(comm.join(7), (frame) => got.push(frame));
await comm.leave(7);
frames.drain();
console.log(got.join());
await comm.close();
Deno.exit(0);`;

mpiTest(
  "packets that come before their isolate has joined wait for it in order",
  async (launcher) => {
    const output = await runJob(launcher, [1, "eval", "--no-check", "--ext=js", EARLY]);
    assert.deepEqual(output, { code: 0, stdout: "first,second\n", stderr: "" });
  },
);

// The first launcher runs the rest: hosts_slow_test.ts has its smoke.
mpiTest("actors and trainings on ranks behave as elsewhere", async (launcher, isSmoke) => {
  assertJob(await runJob(launcher, ...jobParts(ON_EACH ? "all" : isSmoke ? "smoke" : "rest")));
}, { each: true });
