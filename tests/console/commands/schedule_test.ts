/** `troupe schedule`: schedules in every format, compared, searched, and refused. */

import assert from "node:assert/strict";
import { scheduleCommand } from "../../../console/commands/schedule.ts";
import { scheduleDefinitions, scheduleNames } from "../../../schedules/mod.ts";
import REFUSALS from "./schedule_refusals.json" with { type: "json" };

/** The options of most tests. */
const SIZE = "--workers 4 --micro-batches 8";

function run(line: string, files: Record<string, string> = {}) {
  return scheduleCommand(line.split(" "), { readTextFile: (path) => files[path]! });
}

const record = (line: string) => JSON.parse(run(`${line} --format json`).text);

/** Returns the refusal of a command line. */
function refused(line: string, files?: Record<string, string>): string {
  let output;
  try {
    ({ text: output } = run(line, files));
  } catch (error) {
    assert.doesNotMatch((error as Error).message, /\n/, line);
    return `${error}`;
  }
  return assert.fail(`${line} must be refused, received ${output}`);
}

Deno.test("csv has a row for each worker and no empty cells", () => {
  assert.equal(
    run("chimera --workers 4 --micro-batches 4 --format csv").text,
    `0F0,0F1,3F2,3B2,3F3,3B3,0B0,0B1
1F0,2F2,1F1,2F3,2B2,1B0,2B3,1B1
1F2,2F0,1F3,2F1,2B0,1B2,2B1,1B3
0F2,0F3,3F0,3B0,3F1,3B1,0B2,0B3
`,
  );
});

Deno.test("json has these fields and no others", () => {
  assert.deepEqual(record("gems --workers 2 --micro-batches 2"), {
    ...{ name: "gems", workers: 2, stages: 2, microBatches: 2 },
    placement: [
      [{ stage: 0, replica: 0 }, { stage: 1, replica: 1 }],
      [{ stage: 1, replica: 0 }, { stage: 0, replica: 1 }],
    ],
    ...{ makespan: 11, bubbleRatio: Number((5 / 11).toPrecision(12)), idle: [5, 5] },
    ...{ idleLocal: [3, 4], peakActivations: [1, 1], weights: [2, 2] },
  });
});

Deno.test("every schedule can be shown in every format", () => {
  for (const name of scheduleNames()) {
    for (const format of ["grid", "csv", "json", "svg", "trace"]) {
      const { text: output } = run(`${name} ${SIZE} --format ${format}`);
      assert.ok(output.endsWith("\n") && output.length > 50, `${name} as ${format}`);
      if (format === "json") assert.equal(JSON.parse(output).name, name);
    }
  }
  const line = "slimpipe --workers 4 --micro-batches 2 --slices 8";
  const said = /4 workers, (8 stages, )?2 micro-batches in 8 slices, time/;
  for (const format of ["grid", "svg"]) {
    assert.match(run(`${line} --format ${format}`).text, said);
  }
  assert.equal(record(line).slices, 8);
  const { text: output } = run("1f1b --workers 1 --micro-batches 1");
  assert.match(output, /^1f1b: 1 worker, 1 stage, 1 micro-batch, time 3/);
});

/** Lines of flags, with the idle time of worker 0. */
const IDLE: readonly [string, number][] = [
  [`1f1b ${SIZE} --forward 2 --backward 3`, 15],
  [`zb-h1 ${SIZE} --input 2 --weight 1`, 6],
  ["hanayo --workers 4 --micro-batches 4 --waves 3", 2],
  ["interleaved --workers 4 --micro-batches 4 --chunks 3", 3],
  ["chimera --workers 8 --micro-batches 8 --pipelines 2", 4],
  [`chimera ${SIZE} --scale halving`, 2],
  ["message-driven --workers 8 --micro-batches 32 --order backward-first", 24],
  ["message-driven --workers 8 --micro-batches 32 --order fifo --pipeline-limit 15", 21],
  ["1f1b --workers 2 --micro-batches 1 --send 0.5", 4],
  [`dualpipe ${SIZE} --overlap 2.5`, 1.5],
];

Deno.test("costs and parameters are passed to the schedule", () => {
  for (const [line, idle] of IDLE) assert.equal(record(line).idle[0], idle, line);
});

Deno.test("skip edges are shown, counted and compared", () => {
  const flags = `${SIZE} --skip-edges 0>2+3:4MiB,1>3`, slow = `${flags} --skip-send 3`;
  const { text: output } = run(`1f1b ${slow}`);
  assert.match(output, /, time 50, bubbles 52 %\n/);
  const held = /\nskip edges 0>2\+3, 1>3: workers hold at most 1, 2, 5, 7 values and gradients of/;
  assert.match(output, held);
  assert.match(output, /\n +2 +0\.0 MiB +0\.0 MiB +0\.0 MiB +24\.0 MiB +24\.0 MiB\n/);
  const { edges, peakSkips } = record(`1f1b ${slow}`);
  assert.deepEqual(edges, [{ from: 0, to: [2, 3], bytes: 2 ** 22 }, { from: 1, to: [3] }]);
  assert.deepEqual(peakSkips, [1, 2, 5, 7]);
  const rows: { name: string; makespan: number; peakSkips: number[] }[] = record(`compare ${slow}`);
  assert.equal(rows.find(({ name }) => name === "1f1b")!.makespan, 50);
  assert.ok(rows.every(({ peakSkips }) => peakSkips.length > 0));
  assert.match(run(`compare ${flags}`).text, /^schedule .* workers +skips +memory/);
  const mean = (more: string) => record(`jitter ${SIZE} --draws 4${more}`)[0].mean;
  assert.ok(mean(" --skip-edges 0>3 --skip-send 9") > mean(""));
  const lists = run(`1f1b ${SIZE} --format csv`).text;
  const shown = run("mine.csv --skip-edges 0>3 --skip-send 3", { "mine.csv": lists });
  assert.match(shown.text, /skip edges 0>3: /);
});

Deno.test("list names every schedule with a line", () => {
  const lines = run("list").text.trimEnd().split("\n");
  assert.deepEqual(lines.map((line) => line.split(" ")[0]), scheduleNames());
  assert.deepEqual(record("list").map(({ name }: { name: string }) => name), scheduleNames());
  assert.match(run("list").text, /^dapple +another name of 1f1b$/m);
});

Deno.test("compare sorts by bubbles and names schedules that do not fit", () => {
  const records: { name: string; bubbleRatio: number; hops: number }[] = record(
    "compare --workers 8 --micro-batches 16",
  );
  const ratios = records.map(({ bubbleRatio }) => bubbleRatio);
  assert.deepEqual(ratios, ratios.toSorted((a, b) => a - b));
  assert.equal(records.length, scheduleDefinitions.length); // and no alias
  const hopsOf = (name: string) => records.find((one) => one.name === name)!.hops;
  assert.deepEqual(["1f1b", "interleaved", "hanayo", "chimera"].map(hopsOf), [7, 15, 14, 7]);
  const table = run("compare --workers 3 --micro-batches 6").text;
  const columns = ["bubble", "time", "activations", "weights", "hops", "workers"];
  assert.match(table, new RegExp(`^schedule +${columns.join(" +")}`));
  for (const column of columns) assert.match(table, new RegExp(`^${column} {2,}\\w`, "m"));
  assert.match(table, /^These are simulations[^]* default of train is\s+message-driven/m);
  const odd = /Not for these options:\n(.*\n)* {2}chimera: workers must be even, received 3/;
  assert.match(table, odd);
  const two: typeof records = record("compare 1f1b zb-v --workers 4 --micro-batches 8");
  assert.deepEqual(two.map(({ name }) => name), ["zb-v", "1f1b"]);
  const refusal = /one of .* received "zbv"$/;
  assert.throws(() => run("compare zbv --workers 4 --micro-batches 8"), refusal);
});

Deno.test("a search and a comparison report their best result so far", () => {
  const costs = "--forward 1 --backward 2.5 --send 0.3 --activation-limit 3";
  for (const line of [`search ${SIZE} ${costs} --format json`, `compare ${SIZE} --format json`]) {
    const all: unknown[] = [];
    const soFar = ({ text }: { text: string }) => void all.push(JSON.parse(text));
    const { text: output } = scheduleCommand(line.split(" "), { soFar });
    const last = all.at(-1), end = JSON.parse(output);
    assert.ok(all.length > 1, line);
    if (Array.isArray(last)) assert.deepEqual(last, end);
    else {
      const times = (all as { makespan: number }[]).map(({ makespan }) => makespan);
      assert.deepEqual(times, times.toSorted((a, b) => b - a));
      assert.equal(times.at(-1), end.makespan);
    }
  }
});

Deno.test("search prints its lower bound and the gap", () => {
  const search = `search ${SIZE} --activation-limit 3`;
  const said =
    /no order of this placement \(stages [\d+, ]+ on workers 0 to 3\) takes less than [\d.]+: the gap is at most [\d.]+ %/;
  assert.match(run(search).text, said);
  const { lowerBound, makespan } = record(search);
  assert.ok(lowerBound > 0 && lowerBound <= makespan);
});

Deno.test("a CSV file in place of a name is validated and shown", () => {
  const files = {
    "mine.csv": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
    "bad.csv": "0F0,0B0\n1F0\n",
    "torch.csv": "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n",
  };
  assert.equal(run("mine.csv --format csv", files).text, files["mine.csv"]);
  for (const line of ["mine.csv", "mine.csv --workers 2 --micro-batches 2 --send 1"]) {
    assert.match(run(line, files).text, /^mine: 2 workers, 2 stages, 2 micro-batches/);
  }
  assert.match(refused("bad.csv", files), /^RangeError: .* bad: .*worker 1 never runs 1B0/);
  assert.match(refused("mine.csv --waves 2", files), /mine: it does not read waves$/);
  const two = /Cannot show mine.csv: --workers must be 2, as in the file, or left out, received 3$/;
  assert.match(refused("mine.csv --workers 3", files), two);
  assert.throws(() => scheduleCommand(["mine.csv"]), /^TypeError: .*a way to read/);
  const untrainable = /cannot be trained with: worker 0 runs 0B0 after a later micro-batch\n$/;
  assert.match(run("torch.csv", files).text, untrainable);
});

Deno.test("the output file is returned, and its ending is the format; without arguments, or with --help, help is printed", () => {
  const { out, text: output } = run(`1f1b ${SIZE} --format svg --out x.svg`);
  assert.equal(out, "x.svg");
  assert.equal(run(`1f1b ${SIZE} --out x.svg`).text, output);
  assert.equal(run(`1f1b ${SIZE}`).out, undefined);
  for (const args of [[], ["--help"], ["help"]]) {
    assert.match(scheduleCommand(args).text, /^Usage: .*\n(.*\n)* {2}--out FILE/);
  }
});

Deno.test("bytes of stages are shown for each worker, and a limit refuses larger schedules", () => {
  const sizes = "--workers 2 --micro-batches 4 --activation-bytes 8MiB --weight-bytes 1MiB";
  const { text: output } = run(`gpipe ${sizes} --message-bytes 512KiB`);
  assert.match(output, /worker +weights +gradients +optimizer +activations +in all\n/);
  assert.match(output, /^ +0 +1\.0 MiB +1\.0 MiB +2\.0 MiB +34\.0 MiB +38\.0 MiB$/m);
  assert.equal(record(`gpipe ${sizes}`).memory[0].activations, 32 * 2 ** 20);
  assert.equal(
    refused(`gpipe ${sizes} --memory-limit 30MiB`),
    "RangeError: Cannot make the schedule gpipe: each worker must need at most 30.0 MiB, received " +
      "36.0 MiB on worker 0, 4.0 MiB of it for weights, gradients and optimizer",
  );
  const compared = run(`compare ${sizes} --memory-limit 30MiB`).text;
  assert.match(compared, /^1f1b .* MiB$/m);
  assert.match(compared, /^ {2}gpipe: each worker must need at most 30\.0 MiB/m);
  const again = run(`gpipe ${sizes} --kept-bytes 1MiB --memory-limit 30MiB --recompute-ahead`);
  assert.match(again.text, /R0B0/);
  assert.match(refused("gpipe --workers 2 --micro-batches 2 --memory-limit 1GiB"), /^TypeError/);
});

Deno.test("bad input is refused in one sentence", () => {
  for (const [line, sentence] of Object.entries<string>(REFUSALS)) {
    const parts = sentence.split("…").map(RegExp.escape);
    assert.match(refused(line), RegExp(`^${parts.join(".*")}$`), line);
  }
});

Deno.test("jitter shows how fast candidates are in each scenario, and auto chooses the best", () => {
  const rows = run(`jitter ${SIZE} --draws 4`).text.split("\n");
  assert.match(rows[0]!, /^schedule +scenario +send +speedup +deviation +least +mean time +peak +/);
  assert.match(rows[1]!, /^1f1b +above:0.5 +0.2 +1.000 +0.000 +1.000/);
  assert.equal(record(`jitter ${SIZE} --candidates 1f1b,bfw --draws 1`).length, 2);
  const [, limit, order] = /^--pipeline-limit (\d+) --order (\S+): /.exec(rows.at(-2)!)!;
  const lists = (flags: string) => run(`message-driven ${SIZE} ${flags} --format csv`).text;
  const chosen = lists(`--pipeline-limit ${limit} --order ${order}`);
  assert.equal(lists("--pipeline-limit auto --order auto"), chosen);
  const grid = run(`message-driven ${SIZE} --pipeline-limit auto --order fifo`).text;
  assert.match(grid, /\n--pipeline-limit \d+ --order fifo: the smallest limit of 5 candidates/);
  const whole = run(`message-driven ${SIZE} --order auto --weight-backlog 0`).text;
  assert.match(whole, /\n--pipeline-limit 4 --order fifo: /); // bfw needs its backlog to be faster
  const [, one, two] = record(`jitter ${SIZE} --chunks 2 --draws 1`);
  assert.deepEqual([one.hint, two.hint, one.placement[0]], ["bf", "bfw", [0, 7]]);
  const asked = `jitter ${SIZE} --candidates fifo,bfw-v:1.5D:1,zb-v:elastic --draws 2`;
  const laws = "none,lognormal:0.3,multimodal:0.2x3";
  const records = record(`${asked} --scenario ${laws} --sends 0,0.2 --limit-by bytes`);
  assert.equal(records.length, 4 * 3 * 2);
  const { speedup, placement, hint, ...v } = records.at(-2);
  assert.deepEqual(Object.keys(speedup), ["mean", "deviation", "least"]);
  assert.deepEqual([placement[0], hint, v.activationLimit, v.limitBy], [[0, 7], "bfw", 6, "bytes"]);
  assert.ok(v.peakActivations <= 6 && v.peakBacklog === 1 && v.memory > v.peakActivations);
  assert.deepEqual([v.scenario, v.send, records.at(-1).hint], ["multimodal:0.2x3", 0.2, "list"]);
  const svg = run(`${asked} --scenario ${laws} --format svg`).text;
  assert.equal(svg.match(/<polyline /g)!.length, 4);
});
