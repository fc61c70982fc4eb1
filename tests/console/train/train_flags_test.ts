/** Flags of `deno task train` and the options that they set. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readTrainFlags, rememberedFlags } from "../../../console/train/request.ts";
import { importComponents, runOptions } from "../../../console/train/parts.ts";
import { replayedArguments } from "../../../console/commands/replay.ts";
import { analyze } from "../../../schedules/mod.ts";
import { folderTest } from "../../in_folder.ts";
import { bitsOf, someTokens, TINY_MODEL, trainHere, words, writeTokens } from "../command.ts";
import { forgeConfig } from "../forged.ts";

/** The options of a run with these flags. */
const optionsOf = async (flags: string) => {
  const request = await readTrainFlags(flags.split(" ").filter((flag) => flag !== ""));
  return runOptions(request, await importComponents(request));
};

Deno.test("each flag of learning, data parallelism, memory and precision becomes an option", async () => {
  const flags = "--replicas 3 --sync eager-opt --reduce fast --bucket-size 4096 --coarsening 2 " +
    "--precision fp16 --loss-scale 1e4 --clip 0.5 --recompute-interval 2 --memory-limit 1.5GiB " +
    "--offload --drop-last --emulate-link 50,1.25 --policy elastic --layout E,3|1,H " +
    "--stall-timeout 30 --lr 0.01 --lr-schedule linear --warmup 5 --min-lr 0.001 --seed 7 --retries 3";
  const expected = {
    ...{ replicas: 3, sync: "eager-opt", reduce: "fast", bucketSize: 4096, coarsening: 2 },
    ...{ precision: "fp16", lossScale: 1e4, clip: 0.5, recomputeInterval: 2 },
    ...{ memoryLimitBytes: 1.5 * 2 ** 30, offload: true, dropLast: true },
    ...{ link: { latencyUs: 50, gigabytesPerSecond: 1.25 }, policy: "elastic", layout: "E,3|1,H" },
    ...{ stallMs: 30_000, seed: 7, retries: 3 },
    learningRate: { rate: 0.01, schedule: "linear", warmup: 5, minRate: 0.001 },
  };
  const options = Object.entries(await optionsOf(flags));
  assert.deepEqual(Object.fromEntries(options.filter(([name]) => name in expected)), expected);
});

Deno.test("a missing flag has its default, or the run decides", async () => {
  const options = await optionsOf("");
  const { replicas, sync, reduce, precision, clip, lossScale, link, offload, policy } = options;
  assert.deepEqual([replicas, sync, reduce, precision], [1, "end", "deterministic", "fp32"]);
  assert.deepEqual([clip, lossScale, link, offload, policy], [1, ...Array(4).fill(undefined)]);
  assert.equal((await optionsOf("--loss-scale dynamic")).lossScale, "dynamic");
});

Deno.test("the parameters of a schedule are those of troupe schedule", async () => {
  const { scheduleOptions } = await optionsOf(
    "--schedule search --pipelines 2 --scale doubling --chunks 3 --slices 2 --waves 4 --pipeline-limit 5 --order fifo " +
      "--activation-limit 1.5 --weight-limit 2 --forward 1,2 --backward 4 --input 2 --weight 2 --recomputation 1.5 " +
      "--overlap 3.5 --send 0.1",
  );
  assert.deepEqual(scheduleOptions, {
    ...{ pipelines: 2, scale: "doubling", chunks: 3, slices: 2, waves: 4, pipelineLimit: 5 },
    ...{ order: "fifo", activationLimit: 1.5, weightLimit: 2 },
    ...{ weightBacklog: undefined, limitBy: undefined },
    costs: {
      ...{ forward: [1, 2], backward: 4, input: 2, weight: 2 },
      ...{ recompute: 1.5, overlap: 3.5, send: 0.1 },
    },
  });
});

Deno.test("--recompute-ahead puts recomputations into the lists of the schedule", async () => {
  const flags = ["--schedule", "1f1b", "--workers", "2", "--micro-batches", "2"];
  const { schedule } = await readTrainFlags([...flags, "--recompute-ahead"]);
  assert.equal(String(schedule.lists), "0F0,0F1,0R0,0B0,0R1,0B1,1F0,1B0,1F1,1B1");
  await assert.rejects(readTrainFlags(["--recompute-ahead"]), /have lists, received a policy$/);
  const search = words`--schedule search --workers 4 --micro-batches 8 --activation-limit 1`;
  const found = (await readTrainFlags([...search, "--chunks", "1", "--recompute-ahead"])).schedule;
  assert.ok(analyze(found).makespan < 39); // 1F1B with recomputation takes 39
});

Deno.test("--pipeline-limit auto and --order auto are chosen once by simulation, and saved as their values", async () => {
  const given = words`--workers 4 --micro-batches 8 --pipeline-limit auto --order auto --send 0.1`;
  const { flags, args, start = "" } = await readTrainFlags(given);
  const { "pipeline-limit": limit, order } = flags;
  assert.ok(typeof limit === "number" && limit >= 4 && limit <= 8);
  assert.match(start, new RegExp(`^message-driven: --pipeline-limit ${limit} --order ${order}: `));
  // A replay, or another rank, reads the choice.
  const again = await readTrainFlags(args);
  assert.deepEqual([again.flags, again.start], [flags, undefined]);
  const { scheduleOptions } = await optionsOf(given.join(" "));
  assert.deepEqual([scheduleOptions?.pipelineLimit, scheduleOptions?.order], [limit, order]);
  const bounded = await readTrainFlags([...given, "--activation-limit", "5"]);
  assert.equal(bounded.flags["pipeline-limit"], 5);
  await assert.rejects(readTrainFlags([...given, "--schedule", "1f1b"]), {
    message: "Cannot use --order auto: the schedule must be message-driven, received 1f1b",
  });
});

Deno.test("--schedule auto is the fastest in a simulation, message-driven or a list, and saved as its flags", async () => {
  const given = words`--schedule auto --workers 4 --micro-batches 16`;
  const { flags, args, start = "", choices } = await readTrainFlags(given);
  assert.equal(flags.schedule, "message-driven");
  const said =
    /^--schedule message-driven --order bfw .*: the fastest of 12 candidates that .*1f1b/;
  assert.match(start, said);
  assert.deepEqual(new Set(choices.map(({ flags }) => flags.schedule)).size, 7);
  const again = await readTrainFlags(args);
  assert.deepEqual([again.flags, again.start, again.choices], [flags, undefined, []]);
  // Where almost nothing varies and messages take no time, a list is better.
  const calm = await readTrainFlags([...given, "--jitter", "0.001", "--send", "0"]);
  assert.match(calm.flags.schedule, /^zb-/);
  const few = await readTrainFlags(words`--schedule auto --workers 1 --micro-batches 1`);
  assert.equal(few.schedule.workers, 1);
});

Deno.test("a resumed run inherits the flags that its numbers depend on, not those of its execution", async () => {
  const given = "--replicas 2 --clip 1 --precision fp16 --loss-scale dynamic --reduce fast --tie " +
    "--drop-last --sync eager --bucket-size 64 --coarsening 2 --memory --offload --policy list " +
    "--recompute-interval 2 --emulate-link 1,1 --schedule chimera --workers 4 --pipelines 2";
  const remembered = rememberedFlags((await readTrainFlags(given.split(" "))).flags, {});
  const names = "replicas clip precision loss-scale reduce tie drop-last".split(" ");
  const kept = Object.fromEntries(names.map((name) => [name, remembered[name]]));
  assert.deepEqual(kept, {
    ...{ replicas: 2, clip: 1, precision: "fp16", "loss-scale": "dynamic", reduce: "fast" },
    ...{ tie: true, "drop-last": true },
  });
  for (const name of given.split(" ").filter((word) => word.startsWith("--"))) {
    const flag = name.slice(2);
    if (!names.includes(flag)) assert.ok(!(flag in remembered), `${name} is remembered`);
  }
});

folderTest("gradients are clipped by default only on --data or --text", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(3000)), text = join(folder, "a.txt");
  await Deno.writeTextFile(text, "In the beginning was the word. ".repeat(8));
  const first = async (flags: string) => {
    const { clip, learningRate } = await optionsOf(flags);
    return [clip, (learningRate as { warmup: number }).warmup];
  };
  const cases = [
    ["--data moby-dick", 1, 10],
    [`--text ${text}`, 1, 10],
    ["--clip 0.5 --warmup 3", 0.5, 3],
    ["--lr 0.01", 1, 0],
    ["--grad_clip=0.0", 0, 0],
    [`--tokens ${tokens}`, undefined, 0],
    [`--tokens ${tokens} --clip 2`, 2, 0],
    ["--weights deno.json", undefined, 0],
    ["--model mlp --data mnist", undefined, 0],
    ["--model t5", 1, 10],
    ["--schedule pipedream", undefined, 0],
    [`--resume ${folder}`, 1, 10],
  ] as const;
  for (const [flags, clip, warmup] of cases) {
    assert.deepEqual(await first(flags), [clip, warmup], flags);
  }
});

folderTest("a resumed run clips as before, one of an older version not at all", async (folder) => {
  const text = join(folder, "a.txt"), data = ["--text", text];
  await Deno.writeTextFile(text, "In the beginning was the word. ".repeat(8));
  const run = [...TINY_MODEL, ...data, "--runtime", "serial"];
  const { lines } = await trainHere(words`${run} --steps 4 --out ${folder} --checkpoint-every 2`);
  const unclipped = await trainHere([...run, "--steps", "4", "--clip", "0"]);
  assert.notDeepEqual(bitsOf(unclipped.lines), bitsOf(lines));
  const step = join(folder, "step-00000002"), config = join(step, "config.json");
  const on = [...data, "--device", "reference", "--steps", "4", "--out", join(folder, "on")];
  const resumed = await trainHere(["--resume", step, ...on]);
  assert.deepEqual(bitsOf(resumed.lines), bitsOf(lines, 3));
  const again = await trainHere(["--config", config, ...data]);
  assert.deepEqual(bitsOf(again.lines), bitsOf(lines));
  await forgeConfig(step, ({ flags }) => {
    delete flags.clip;
    flags.warmup = 0;
  });
  for (const args of [["--resume", step], ["--config", config]]) {
    const { clip } = (await readTrainFlags([...args, ...data])).flags;
    assert.equal(clip, undefined, args[0]);
  }
  const old = await trainHere(["--config", config, ...data]);
  assert.deepEqual(bitsOf(old.lines), bitsOf(unclipped.lines));
});

Deno.test("a journal records the default clipping; without a record, nothing was clipped", async () => {
  const { journal } = await optionsOf("--journal run.jsonl");
  const { train } = journal!.configuration as { train: string[] };
  const clipOf = async (args: readonly string[]) =>
    (await readTrainFlags(replayedArguments(args, {}, "run.jsonl"))).flags.clip;
  assert.equal(await clipOf(train), 1);
  assert.equal(await clipOf(["--journal", "run.jsonl"]), 0);
});

Deno.test("a replay neither reports its memory nor moves", () => {
  const args = replayedArguments(["--memory", "--buddy", "--failover", "resize"], {}, "run.jsonl");
  assert.deepEqual(args.map((one) => one.replace(/\d{2,}/, "N")), ["--clip=0", "--memory-limit=N"]);
});
