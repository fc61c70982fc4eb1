/** Decisions of `troupe launch`: deaths, stalls, restarts, hosts and quoting. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { writeFinished } from "../../../actors/checkpoints/markers.ts";
import type { Liveness } from "../../../actors/transports/mpi/launch_watch.ts";
import {
  hydraOutput,
  type LineFilter,
  openMpiErrors,
  placeRanks,
  readHosts,
  shellLine,
  slurmScript,
  srunErrors,
  srunLine,
} from "../../../console/launch/launcher.ts";
import { type JobEnd, openJobWatch, relaunch } from "../../../console/launch/launch.ts";
import { folderTest } from "../../in_folder.ts";
import DEATHS from "./deaths.json" with { type: "json" };
import { Capture } from "../command.ts";

const FILTERS: Readonly<Record<string, () => LineFilter>> = {
  ...{ hydraOutput, openMpiErrors, srunErrors },
};

Deno.test("the first death is read from the output of each launcher, and other lines are printed", () => {
  for (const { launcher, text, passed: lines, death } of DEATHS) {
    const filter = FILTERS[launcher]!();
    const passed = text.split("\n").flatMap((line) => filter.take(line));
    assert.deepEqual([...passed, ...filter.rest()], lines);
    assert.deepEqual(filter.death, death, text);
  }
});

const signOf = (rank: number, phase: Liveness["phase"]): Liveness => ({
  ...{ rank, phase, pid: 100 + rank, host: "node1" },
});

/** Opens a watch with a limit of one second, which checks only when `looks` is called. */
function watched(isTrain: boolean) {
  const { setInterval } = globalThis;
  let look = () => {}, stalls = 0;
  // deno-lint-ignore no-explicit-any
  globalThis.setInterval = ((run: () => void) => (look = run, 0)) as any;
  const watch = openJobWatch({ isTrain, stallMs: 1000 }, () => stalls++);
  globalThis.setInterval = setInterval;
  /** Checks until the job stalls, at most `most` times; returns the number of checks. */
  const looks = (most: number) => {
    for (let n = 1; n <= most; n++) {
      look();
      if (watch.stalled !== undefined) return n;
    }
  };
  return { watch, looks, stallsOf: () => stalls };
}

Deno.test("a job is stalled if its ranks do not join, progress or leave in time", () => {
  const joining = watched(true);
  assert.equal(joining.looks(30), 21);
  assert.match(joining.watch.stalled!, /^the ranks did not connect within 5 s$/);
  assert.equal(joining.stallsOf(), 1);

  const own = watched(false);
  assert.equal(own.looks(100), undefined, "a command may do anything before it joins");

  const moving = watched(true);
  moving.watch.hear(signOf(0, "joined"));
  assert.equal(moving.looks(4), undefined);
  moving.watch.hear(signOf(0, "joined"));
  assert.equal(moving.looks(4), undefined);
  moving.watch.hear(signOf(1, "joined")); // only rank 0 keeps the job alive
  assert.equal(moving.looks(9), 1);
  assert.match(moving.watch.stalled!, /^rank 0 made no progress for 1 s$/);

  const leaving = watched(true);
  leaving.watch.hear(signOf(0, "leaving"));
  for (let n = 0; n < 4; n++) {
    assert.equal(leaving.looks(1), undefined);
    leaving.watch.hear(signOf(0, "leaving"));
  }
  assert.equal(leaving.looks(1), 1);
  assert.match(leaving.watch.stalled!, /^the ranks did not end within 1 s$/);

  const left = watched(true);
  for (const phase of ["left", "leaving"] as const) left.watch.hear(signOf(0, phase));
  assert.equal(left.looks(100), undefined);
  assert.deepEqual([...left.watch.ranks.values()], [signOf(0, "left")]);
});

/** The end of a try, with the step of its checkpoint. */
type Try = Partial<JobEnd> & { readonly leaves?: number; readonly finishes?: string };

/** Relaunches a job with scripted tries; returns its code or error, and whether each try resumed. */
async function relaunched(out: string, tries: readonly Try[]) {
  using stderr = new Capture(Deno.stderr);
  const resumed: boolean[] = [];
  const run = async (hasCheckpoint: boolean): Promise<JobEnd> => {
    const { leaves, finishes, ...end } = tries[resumed.push(hasCheckpoint) - 1]!;
    if (leaves) await Deno.mkdir(join(out, `step-${String(leaves).padStart(8, "0")}`));
    const mark = { step: 9, weightsHash: "", configHash: "" };
    if (finishes) await writeFinished(out, { ...mark, launch: finishes });
    const ranks = new Map([[1, signOf(1, "joined")]]);
    return { code: 1, death: undefined, stalled: undefined, ranks, unheard: undefined, ...end };
  };
  const { signal } = new AbortController(), way = { stallMs: 1000, isTrain: true };
  const result = await relaunch({ out, launch: "this", maxRestarts: 1, signal, run, ...way })
    .catch(({ message }: Error) => message);
  return { result, resumed, said: stderr.text };
}

folderTest("a job is restarted until it finishes", async (out) => {
  const killed = { signal: "Killed (signal 9)" };
  const { result, resumed, said } = await relaunched(out, [
    { death: { pid: 101, host: "other", ...killed } },
    { death: { rank: 0, code: 7 }, leaves: 2, finishes: "another" },
    { stalled: "rank 0 made no progress for 1 s", leaves: 4 },
    { code: 0, finishes: "this" },
  ]);
  assert.equal(result, 0);
  assert.deepEqual(resumed, [false, false, true, true]);
  assert.deepEqual(said.trimEnd().split("\n"), [
    "Rank 1 on other died of Killed (signal 9); continuing from the beginning (restart 1 of 1)",
    "Rank 0 ended too early with exit code 7; continuing from step 2 (restart 1 of 1)",
    "The job was stopped: rank 0 made no progress for 1 s; continuing from step 4 (restart 1 of 1)",
  ]);
});

folderTest("a job that is refused or never starts is not restarted", async (out) => {
  const often = await relaunched(out, [{ code: 0 }, { code: 3 }]);
  const sentence = "The job ended too early with exit code 3; there is no check";
  const said = new RegExp(`^Cannot restart the job: it failed 2 times .* ${sentence}`);
  assert.match(`${often.result}`, said);
  assert.equal(often.resumed.length, 2, "exit code 0 without a finished file is no success");
  assert.equal((await relaunched(out, [{ code: 2 }])).result, 2);
  const none = { code: 5, ranks: new Map() };
  const told = /^Cannot launch: the launcher must start the ranks, received its exit code 5 before/;
  assert.match(`${(await relaunched(out, [none])).result}`, told);
  const unheard = new Error("Broken pipe");
  assert.equal((await relaunched(out, [{ unheard }])).result, "Broken pipe");
  const killed = { code: 2, death: { rank: 0, signal: "Killed" } };
  assert.equal((await relaunched(out, [killed, { finishes: "this" }])).result, 0);
});

folderTest("a file names the hosts of a job, which get their shares in order", async (folder) => {
  const path = join(folder, "hosts");
  const read = async (text: string) => {
    await Deno.writeTextFile(path, text);
    return readHosts(path);
  };
  const listed = await read("# two of them\nnode1 slots=4\n\nnode-2.a : 2 # fast\nnode3\n");
  assert.deepEqual(listed.map(({ name, slots }) => [name, slots]), [
    ...[["node1", 4], ["node-2.a", 2], ["node3", undefined]],
  ]);
  const place = (ranks: number, hosts = listed) => {
    const placed = placeRanks(hosts, ranks);
    return [placed.hosts.map((host) => host.ranks).join(), placed.isTooMany];
  };
  assert.deepEqual([3, 5, 7, 8, 14].map((ranks) => place(ranks)), [
    ...[["3", false], ["4,1", false], ["4,2,1", false], ["5,2,1", true], ["8,4,2", true]],
  ]);
  assert.deepEqual(place(5, await read("a\nb\n")), ["3,2", false]);
  const strange = [
    ["node1\nnode 2\n", /line 2 must be a host.*received "node 2"$/],
    ["-oProxyCommand:2\n", /line 1 must be a host.*received "-oProxyCommand:2"$/],
    ["node1:0\n", /line 1 must be a host/],
    ["# none\n", /its file must name a host, received none$/],
  ] as const;
  for (const [text, sentence] of strange) await assert.rejects(read(text), sentence);
});

Deno.test("command lines and scripts quote their words for a shell", () => {
  const words = ["plain-1.0/@%+=:,", "two words", "it's", "$HOME", "", "*"];
  const wanted = `TROUPE_WORD='a b' plain-1.0/@%+=:, 'two words' 'it'\\''s' '$HOME' '' '*'`;
  assert.equal(shellLine({ env: { TROUPE_WORD: "a b" }, words }), wanted);
  const script = slurmScript({ ranks: 3, folder: "/a b", launch: ["true", "it's"], srun: "a\nb" });
  assert.match(script, /^#SBATCH --ntasks=3$/m);
  assert.match(script, /^#SBATCH --signal=B:TERM@120$/m);
  assert.match(script, /^cd '\/a b' \|\| exit 2\n(#.*\n)+# {3}a b\nexec true 'it'\\''s'\n$/m);
  const job = { command: ["a"], ranks: 3, hosts: [], isTooMany: false };
  assert.equal(
    shellLine(srunLine("pmix", { ...job, interface: undefined, remoteShell: undefined })),
    "srun --ntasks=3 --mpi=pmix --input=0 --kill-on-bad-exit=1 --cpu-bind=none a",
  );
});
