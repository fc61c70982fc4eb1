import assert from "node:assert/strict";
import { join } from "node:path";
import { bitsOf, jsonLines, printedHere, trainHere } from "../../../console/command.ts";
import { inFolder, namesIn } from "../../../in_folder.ts";
import {
  assertJob,
  jobParts,
  mpiTest,
  ON_EACH,
  RANK_TRAIN,
  runCommand,
  runJob,
  TRAIN,
} from "./launchers.ts";
import { canMakeHosts, makeHosts } from "./test_hosts.ts";

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

mpiTest("packets that come before their isolate has joined wait for it", async (launcher) => {
  const output = await runJob(launcher, [1, "eval", "--no-check", "--ext=js", EARLY]);
  assert.deepEqual(output, { code: 0, stdout: "first,second\n", stderr: "" });
});

// The first launcher runs the rest: the test on two hosts has its smoke.
mpiTest("actors and trainings on ranks behave as elsewhere", async (launcher, isSmoke) => {
  assertJob(await runJob(launcher, ...jobParts(ON_EACH ? "all" : isSmoke ? "smoke" : "rest")));
}, { each: true });

mpiTest("actors and trainings on two hosts behave as elsewhere", async (launcher) => {
  using hosts = await makeHosts();
  const before = await hosts.bytesCarried();
  assertJob(await hosts.run(launcher, ...jobParts("smoke")));
  assert.ok(await hosts.bytesCarried() - before > 200_000, "the cable has carried it");
}, { need: { isThere: canMakeHosts, reason: "root and iproute2, to make hosts" } });

/** The command `train` on ranks: its output, its journal and its checkpoints. */

mpiTest(
  "rank 0 alone prints, and its journal replays without ranks",
  (launcher) =>
    inFolder(async (folder) => {
      const journal = join(folder, "journal.jsonl"), out = ["--out", join(folder, "out")];
      const args = RANK_TRAIN.filter((arg) => arg !== "--json");
      const more = ["--schedule", "chimera", ...out, "--journal", journal, "--journal-messages"];
      const output = await runJob(launcher, [2, ...args, ...more]);
      assert.equal(output.code, 0, output.stderr);
      const lines = output.stdout.trimEnd().split("\n"), done = JSON.parse(lines.at(-1)!);
      assert.deepEqual([done.done, done.runtime], [true, "mpi"]);
      assert.equal(lines.filter((line) => line.startsWith("schedule chimera")).length, 1);
      const replayed = await printedHere("replay", journal);
      assert.match(replayed, /^\d{3} steps as recorded, hash [0-9a-f]{16}$/m);
      assert.ok(replayed.includes(`"weightsHash":"${done.weightsHash}"`), replayed);
    }),
);

mpiTest(
  "ranks without a common folder are refused, unless rank 0 gathers",
  ({ command, args }) =>
    inFolder(async (folder) => {
      const folders = ["one", "two"].map((name) => join(folder, name)) as [string, string];
      for (const one of folders) await Deno.mkdir(one);
      // Each rank has another working directory, so that a path means another file in each.
      const rank = [Deno.execPath(), ...RANK_TRAIN, "--out", "/proc/self/cwd/out"];
      const run = (...flags: string[]) => {
        const [one, two] = folders.map((folder) => ["-n", "1", "-wdir", folder, ...rank, ...flags]);
        return runCommand([command, ...args, ...one!, ":", ...two!]);
      };
      const refused = await run();
      assert.equal(refused.code, 2, refused.stderr);
      assert.equal(refused.stdout, "");
      const unseen = /every rank must see the files of rank 0.*received on rank 1.*--gather/;
      assert.match(refused.stderr, unseen);
      assert.equal(refused.stderr.match(/^Cannot/gm)?.length, 1, refused.stderr);
      assert.deepEqual(await namesIn(folders[0]), [], "nothing was trained");

      const gathered = await run("--gather");
      assert.equal(gathered.code, 0, gathered.stderr);
      assert.deepEqual(bitsOf(jsonLines(gathered.stdout)), bitsOf((await trainHere(TRAIN)).lines));
      const [saved] = (await namesIn(join(folders[0], "out"))).filter((name) => /^step/.test(name));
      assert.ok((await namesIn(join(folders[0], "out", saved!))).includes("model.safetensors"));
      assert.deepEqual(await namesIn(folders[1]), []);
    }),
);
