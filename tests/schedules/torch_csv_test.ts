import assert from "node:assert/strict";
import { scheduleCommand } from "../../console/mod.ts";
import {
  createSchedule,
  formatCsv,
  formatTorchCsv,
  type ListedSchedule,
  parseCsv,
  scheduleDefinitions,
  scheduleFromLists,
  type ScheduleOptions,
  withLists,
} from "../../schedules/mod.ts";
import { allCases, inWords, made } from "./cases.ts";

/** What a schedule has that PyTorch's file cannot say, by the sentence that refuses it. */
function unsayable({ placement, lists, replicaOf }: ListedSchedule): RegExp | undefined {
  if (/\d\+\d|\.[01]|\ds\d/.test(lists.join())) {
    return /each action must be one of a whole micro-batch/;
  }
  const held = placement.flatMap((stages) => {
    const used = stages.filter(({ replica }) => replicaOf.includes(replica));
    return [...new Set(used.map(({ stage }) => stage))];
  });
  return new Set(held).size < held.length ? /each stage must be on one worker/ : undefined;
}

/** PyTorch's rules for a file of computation, told anew: what it asserts when it loads one. */
function assertTorchTakes(csv: string, microBatches: number, where: string): void {
  const done = new Set<string>(), rankOf = new Map<string, number>();
  let [stages, losses] = [0, ""];
  const rows = csv.trimEnd().split("\n").map((row) =>
    row.split(",").map((cell) => {
      const overlap = /^\((\d+F\d+;\d+B\d+|\d+B\d+;\d+F\d+)\)OVERLAP_F_B$/.exec(cell);
      return (overlap ? overlap[1]!.split(";") : [cell]).map((one) => {
        const [, stage, kind, microBatch] = /^(\d+)([FBIW])(\d+)$/.exec(one) ?? assert.fail(where);
        stages = Math.max(stages, Number(stage) + 1);
        return { stage: Number(stage), kind: kind!, microBatch: Number(microBatch) };
      });
    })
  );
  const has = (stage: number, kinds: string, microBatch: number) =>
    [...kinds].some((kind) => done.has(`${stage}${kind}${microBatch}`));
  const canRun = ({ stage, kind, microBatch }: (typeof rows)[number][number][number]) => {
    if (kind === "F") return stage === 0 || has(stage - 1, "F", microBatch);
    if (kind === "W") return has(stage, "I", microBatch);
    return has(stage, "F", microBatch) &&
      (stage === stages - 1 || has(stage + 1, "BI", microBatch));
  };
  for (let ran = true; ran;) {
    ran = false;
    for (const [rank, row] of rows.entries()) {
      for (let next = row[0]; next?.every(canRun); next = row[0]) {
        for (const { stage, kind, microBatch } of row.shift()!) {
          done.add(`${stage}${kind}${microBatch}`);
          assert.equal(rankOf.get(`${stage}`) ?? rank, rank, `${where}: stage ${stage}`);
          rankOf.set(`${stage}`, rank);
          if (kind === "F" && stage === stages - 1) losses += `${microBatch} `;
        }
        ran = true;
      }
    }
  }
  assert.deepEqual(rows.flat(), [], `${where}: no rank can go on`);
  for (let stage = 0; stage < stages; stage++) {
    const count = (kind: string) =>
      [...done].filter((one) => one.startsWith(`${stage}${kind}`)).length;
    assert.equal(count("F"), microBatches, where);
    assert.equal(count("I"), count("W"), where);
    assert.equal(count("B") + count("I"), microBatches, where);
  }
  assert.equal(losses, [...Array(microBatches).keys()].map((m) => `${m} `).join(""), where);
}

Deno.test("every schedule that PyTorch's file can say is read back from it, and keeps PyTorch's rules", () => {
  const said = new Set<string>(), refused = new Set<string>();
  for (const one of allCases()) {
    if (one.options.workers > 6 || one.options.microBatches > 16) continue;
    const schedule = made(one), where = inWords(one);
    if (schedule === undefined) continue;
    const listed = withLists(schedule), why = unsayable(listed);
    if (why) {
      assert.throws(
        () => formatTorchCsv(listed.lists),
        { name: "RangeError", message: why },
        where,
      );
      refused.add(one.name);
      continue;
    }
    const csv = formatTorchCsv(listed.lists), lists = parseCsv(csv);
    assert.equal(formatCsv(lists), formatCsv(listed.lists), where);
    assert.deepEqual(scheduleFromLists("again", lists).placement.length, listed.workers, where);
    assertTorchTakes(csv, listed.microBatches, where);
    said.add(one.name);
  }
  for (const name of ["1f1b", "interleaved-zb", "hanayo", "zb-v", "dualpipe-v", "seq1f1b"]) {
    assert.ok(said.has(name), name);
  }
  for (const name of ["chimera", "chimera-wave", "gems", "dualpipe", "chimera-greedy", "seq1f1b"]) {
    assert.ok(refused.has(name), name);
  }
});

/** What `troupe schedule` says of what PyTorch's file cannot say. */
const REFUSED: readonly [line: string, message: RegExp][] = [
  ["chimera", /each stage must be on one worker, received stage 1 on workers 1 and 2$/],
  ["chimera --scale doubling", /or an overlap of a forward and a backward, received 0F4\+5$/],
  ["chimera --micro-batches 4 --scale halving", /received 3B2\.0$/],
  ["gems", /each stage must be on one worker, received stage 2 on workers 1 and 2$/],
  ["dualpipe", /each stage must be on one worker, received stage \d on workers \d and \d$/],
  ["seq1f1b --slices 2", /each action must be one of a whole micro-batch.*, received 0F0s0$/],
  ["pipedream", /the weights must change after the step, received pipedream, .*every-backward$/],
  ["pipedream-2bw", /received pipedream-2bw, whose updates are double-buffered$/],
];

Deno.test("what PyTorch's file cannot say is refused by name", () => {
  for (const [line, message] of REFUSED) {
    const sizes = line.includes("--micro-batches") ? "" : " --micro-batches 8";
    const words = `${line} --workers 4${sizes} --format pytorch`.split(" ");
    assert.throws(() => scheduleCommand(words), { name: "RangeError", message }, line);
  }
  const written = (csv: string) => () => formatTorchCsv(parseCsv(csv));
  assert.throws(written("0F0,0R0,0B0\n"), /received 0R0$/);
  assert.throws(written("0F0,0F1&0I0,0W0,0B1\n"), /received 0F1&0I0$/);
  assert.throws(
    written("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n"),
    /the last stage must take micro-batches in order, received 1F1 as number 0$/,
  );
});

Deno.test("every schedule whose stages are on one worker each can be written for PyTorch", () => {
  const options: ScheduleOptions = { workers: 4, microBatches: 8 };
  for (const { name } of scheduleDefinitions) {
    const listed = withLists(createSchedule(name, options));
    if (unsayable(listed) || listed.updates !== "flush") continue;
    const words = `${name} --workers 4 --micro-batches 8 --format pytorch`.split(" ");
    assert.ok(scheduleCommand(words).output.startsWith("0F0,"), name);
  }
});
