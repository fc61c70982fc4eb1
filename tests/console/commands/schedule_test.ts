import assert from "node:assert/strict";
import { scheduleCommand } from "../../../console/mod.ts";
import { scheduleDefinitions, scheduleNames } from "../../../schedules/mod.ts";

function run(line: string, files: Record<string, string> = {}) {
  return scheduleCommand(line.split(" "), { readTextFile: (path) => files[path]! });
}

Deno.test("csv has a row for each worker and no empty cells", () => {
  const { output, out } = run("chimera --workers 4 --micro-batches 4 --format csv");
  assert.equal(out, undefined);
  assert.equal(
    output,
    `0F0,0F1,3F2,3B2,3F3,3B3,0B0,0B1
1F0,2F2,1F1,2F3,2B2,1B0,2B3,1B1
1F2,2F0,1F3,2F1,2B0,1B2,2B1,1B3
0F2,0F3,3F0,3B0,3F1,3B1,0B2,0B3
`,
  );
});

Deno.test("json has exactly the fields that are promised", () => {
  const { output } = run("gems --workers 2 --micro-batches 2 --format json");
  assert.deepEqual(JSON.parse(output), {
    name: "gems",
    workers: 2,
    stages: 2,
    microBatches: 2,
    placement: [
      [{ stage: 0, replica: 0 }, { stage: 1, replica: 1 }],
      [{ stage: 1, replica: 0 }, { stage: 0, replica: 1 }],
    ],
    makespan: 11,
    bubbleRatio: Number((5 / 11).toPrecision(12)),
    idle: [5, 5],
    idleLocal: [3, 4],
    peakActivations: [1, 1],
    weights: [2, 2],
  });
});

Deno.test("slices are told wherever a schedule is", () => {
  const line = "slimpipe --workers 4 --micro-batches 2 --slices 8";
  assert.match(
    run(line).output,
    /^slimpipe: 4 workers, 8 stages, 2 micro-batches in 8 slices, time/,
  );
  assert.match(run(`${line} --format svg`).output, /4 workers, 2 micro-batches in 8 slices, time/);
  assert.equal(JSON.parse(run(`${line} --format json`).output).slices, 8);
});

Deno.test("every schedule can be shown in every format", () => {
  for (const name of scheduleNames()) {
    for (const format of ["grid", "csv", "json", "svg", "trace"]) {
      const { output } = run(`${name} --workers 4 --micro-batches 8 --format ${format}`);
      assert.ok(output.endsWith("\n") && output.length > 50, `${name} as ${format}`);
      if (format === "json") assert.equal(JSON.parse(output).name, name);
    }
  }
});

Deno.test("costs and parameters reach the schedule", () => {
  const idle = (flags: string) =>
    JSON.parse(run(`${flags} --format json`).output).idle[0] as number;
  assert.equal(idle("1f1b --workers 4 --micro-batches 8 --forward 2 --backward 3"), 15);
  assert.equal(idle("zb-h1 --workers 4 --micro-batches 8 --input 2 --weight 1"), 6);
  assert.equal(idle("hanayo --workers 4 --micro-batches 4 --waves 3"), 2);
  assert.equal(idle("interleaved --workers 4 --micro-batches 4 --chunks 3"), 3);
  assert.equal(idle("chimera --workers 8 --micro-batches 8 --pipelines 2"), 4);
  assert.equal(idle("chimera --workers 4 --micro-batches 8 --scale halving"), 2);
  assert.equal(
    idle("message-driven --workers 8 --micro-batches 32 --order backward-first"),
    120 - 96,
  );
  assert.equal(idle("message-driven --workers 8 --micro-batches 32 --pipeline-limit 15"), 21);
  assert.equal(idle("1f1b --workers 2 --micro-batches 1 --send 0.5"), 4);
});

Deno.test("skip edges are shown, counted and compared", () => {
  const size = "--workers 4 --micro-batches 8 --skip-edges 0>2+3:4MiB,1>3";
  const { output } = run(`1f1b ${size} --skip-send 3`);
  assert.match(output, /, time 50, bubbles 52 %\n/);
  const line =
    "skip edges 0>2+3, 1>3: workers hold at most 1, 2, 5, 7 values and gradients of them";
  assert.ok(output.includes(`\n${line}\n`), output);
  assert.match(output, /\n +2 +0\.0 MiB +0\.0 MiB +0\.0 MiB +24\.0 MiB +24\.0 MiB\n/);
  const record = JSON.parse(run(`1f1b ${size} --skip-send 3 --format json`).output);
  assert.deepEqual(record.edges, [{ from: 0, to: [2, 3], bytes: 2 ** 22 }, { from: 1, to: [3] }]);
  assert.deepEqual(record.peakSkips, [1, 2, 5, 7]);
  const compared = run(`compare ${size} --skip-send 3 --format json`).output;
  const rows = JSON.parse(compared) as { name: string; makespan: number; peakSkips: number[] }[];
  assert.equal(rows.find(({ name }) => name === "1f1b")!.makespan, 50);
  assert.ok(rows.every(({ peakSkips }) => peakSkips.length > 0));
  assert.match(run(`compare ${size}`).output, /^schedule .* workers +skips +memory/);
  const mean = (line: string) =>
    JSON.parse(run(`jitter --workers 4 --micro-batches 8 --format json${line}`).output)[0].mean;
  assert.ok(mean(" --skip-edges 0>3 --skip-send 9") > mean(""));
  const lists = run("1f1b --workers 4 --micro-batches 8 --format csv").output;
  const shown = run(`mine.csv --skip-edges 0>3 --skip-send 3`, { "mine.csv": lists });
  assert.match(shown.output, /skip edges 0>3: /);
});

Deno.test("a skip edge that nobody can use is told in one sentence", () => {
  const refused = (edges: string, more = "") => {
    const line = `1f1b --workers 4 --micro-batches 8 --skip-edges ${edges}${more}`;
    try {
      run(line);
    } catch (error) {
      return (error as Error).message;
    }
    return undefined;
  };
  const must = 'a stage and the later ones that use its value, such as "0>3" or ' +
    '"0>2+3:4MiB,1>2"';
  for (const text of ["0", "0>", ">1", "0>1>2", "0>3:", "0>3:0", "0>-1", "0>1,", "0>1.5"]) {
    const told = `Cannot use --skip-edges: it must be ${must}, received "${text}"`;
    assert.equal(refused(text), told);
  }
  assert.equal(
    refused("3>1"),
    "Cannot use the skip edge 3>1: its value must go to a later stage, received a circle: " +
      "1F0 waits for 3F0, 3F0 waits for 2F0, 2F0 waits for 1F0",
  );
  const it = "Cannot use the skip edge ";
  assert.equal(refused("1>1"), `${it}1>1: its value must go to another stage, received 1`);
  assert.equal(
    refused("0>4"),
    `${it}0>4: its stages must be whole numbers from 0 to 3, received 4`,
  );
  assert.equal(
    refused("0>3+2"),
    `${it}0>3+2: the stages that use its value must ascend, received 3+2`,
  );
  assert.equal(
    refused("0>3", " --skip-send 1,2"),
    "Cannot use these costs: skip must be of the 1 skip edges of 1f1b, received 2",
  );
  assert.throws(
    () => run("1f1b --workers 4 --micro-batches 8 --skip-send 1"),
    /^TypeError: Cannot use --skip-send: --skip-edges must be given, received none$/,
  );
});

Deno.test("list names every schedule with a line", () => {
  const lines = run("list").output.trimEnd().split("\n");
  assert.deepEqual(lines.map((line) => line.split(" ")[0]), scheduleNames());
  const entries = JSON.parse(run("list --format json").output) as { name: string }[];
  assert.deepEqual(entries.map(({ name }) => name), scheduleNames());
  assert.match(run("list").output, /^dapple +another name of 1f1b$/m);
});

Deno.test("compare puts the fewest bubbles first and says what does not fit", () => {
  const records = JSON.parse(run("compare --workers 8 --micro-batches 16 --format json").output);
  const ratios = records.map(({ bubbleRatio }: { bubbleRatio: number }) => bubbleRatio);
  assert.deepEqual(ratios, ratios.toSorted((a: number, b: number) => a - b));
  assert.equal(records.length, scheduleDefinitions.length); // and no alias
  const hops = Object.fromEntries(
    records.map(({ name, hops }: { name: string; hops: number }) => [name, hops]),
  );
  assert.deepEqual(
    [hops["1f1b"], hops["interleaved"], hops["hanayo"], hops["chimera"]],
    [7, 15, 14, 7],
  );
  const table = run("compare --workers 3 --micro-batches 6").output;
  const columns = ["bubble", "time", "activations", "weights", "hops", "workers"];
  assert.match(table, new RegExp(`^schedule +${columns.join(" +")}`));
  for (const column of columns) assert.match(table, new RegExp(`^${column} {2,}\\w`, "m"));
  assert.match(table, /^All of it on paper[^]* default of train is message-driven/m);
  assert.match(
    table,
    /Not for these options:\n(.*\n)* {2}chimera: workers must be even, received 3/,
  );
});

Deno.test("search prints its lower bound and the gap", () => {
  const grid = run("search --workers 4 --micro-batches 8 --activation-limit 3").output;
  assert.match(
    grid,
    /no order of this placement \(stages [\d+, ]+ on workers 0 to 3\) takes less than [\d.]+: the gap is at most [\d.]+ %/,
  );
  const { lowerBound, makespan } = JSON.parse(
    run("search --workers 4 --micro-batches 8 --activation-limit 3 --format json").output,
  );
  assert.ok(lowerBound > 0 && lowerBound <= makespan);
  // Overlaps make the order shorter than any without them.
  const overlapping =
    "search --workers 4 --micro-batches 8 --forward 1 --backward 2 --overlap 1.5 " +
    "--weight-limit 2 --activation-limit 6 --format json";
  const record = JSON.parse(run(overlapping).output);
  assert.equal(record.makespan, 21);
  assert.ok(record.lowerBound <= 21);
});

Deno.test("a CSV file in the place of a name is validated and shown", () => {
  const files = { "mine.csv": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "bad.csv": "0F0,0B0\n1F0\n" };
  assert.equal(run("mine.csv --format csv", files).output, files["mine.csv"]);
  assert.match(run("mine.csv", files).output, /^mine: 2 workers, 2 stages, 2 micro-batches/);
  assert.throws(() => run("bad.csv", files), {
    name: "RangeError",
    message: /Cannot run the schedule bad: .*worker 1 never runs 1B0/,
  });
  assert.throws(() => scheduleCommand(["mine.csv"]), {
    name: "TypeError",
    message: /a way to read/,
  });
});

Deno.test("sums in descending order can be looked at, with a note", () => {
  const files = { "torch.csv": "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n" };
  const { output } = run("torch.csv", files);
  assert.match(output, /cannot be trained with: worker 0 runs 0B0 after a later micro-batch\n$/);
});

Deno.test("a file of lists reads no options, and has its own size", () => {
  const files = { "mine.csv": "0F0,0B0\n" };
  assert.match(run("mine.csv --workers 1 --micro-batches 1 --send 1", files).output, /^mine: 1 w/);
  assert.throws(() => run("mine.csv --waves 2", files), /mine: it does not read waves$/);
  assert.throws(() => run("mine.csv --workers 2", files), {
    message: "Cannot show mine.csv: --workers must be 1, as in the file, or left out, received 2",
  });
});

Deno.test("the file to write to is handed on", () => {
  const { out } = run("1f1b --workers 2 --micro-batches 2 --format svg --out x.svg");
  assert.equal(out, "x.svg");
});

Deno.test("without arguments, or asked for help, the command explains itself", () => {
  for (const args of [[], ["--help"], ["help"]]) {
    assert.match(scheduleCommand(args).output, /^Usage: .*\n(.*\n)* {2}--out FILE/);
  }
});

const BAD: readonly [string, string, RegExp][] = [
  ["1f1b --workers 4", "TypeError", /--micro-batches must be given/],
  ["1f1b --micro-batches 4", "TypeError", /--workers must be given/],
  ["--workers 4 --micro-batches 4", "TypeError", /there must be one name, list or compare/],
  ["1f1b gpipe", "TypeError", /received "1f1b gpipe"/],
  ["1f1b --wrokers 4", "TypeError", /each must be one of --workers, .*received "--wrokers"/],
  ["1f1b --workers", "TypeError", /--workers must be followed by its value/],
  ["1f1b --workers 2 --workers 3", "TypeError", /--workers must be given once/],
  [
    "1f1b --workers two",
    "RangeError",
    /--workers: it must be a whole number from 1, received "two"/,
  ],
  ["1f1b --workers -1", "RangeError|TypeError", /--workers|-1/],
  [
    "1f1b --workers 2 --micro-batches 2 --forward x",
    "RangeError",
    /--forward: it must be a number/,
  ],
  ["1f1b --workers 2 --micro-batches 2 --forward 1,2,3", "RangeError", /multiple of the 2 stages/],
  [
    "1f1b --workers 2 --micro-batches 2 --format png",
    "RangeError",
    /one of grid, csv, pytorch, json, svg, trace/,
  ],
  [
    "chimera --workers 4 --micro-batches 4 --scale half",
    "RangeError",
    /--scale: it must be one of/,
  ],
  ["dualpipe --workers 4 --micro-batches 4", "RangeError", /even and at least 8 for 4 workers/],
  ["list --format svg", "RangeError", /--format must be grid or json, received svg/],
  ["compare --workers 2 --micro-batches 2 --format csv", "RangeError", /grid or json/],
  ["1f1b --workers 2 --micro-batches 2 --waves 3", "RangeError", /not read waves; .*: hanayo, se/],
  ["nonesuch --workers 2 --micro-batches 2", "RangeError", /name must be one of gpipe/],
];

Deno.test("bytes of stages are shown for each worker, and a limit refuses what needs more", () => {
  const sizes = "--workers 2 --micro-batches 4 --activation-bytes 8MiB --weight-bytes 1MiB";
  const { output } = run(`gpipe ${sizes} --message-bytes 512KiB`);
  assert.match(output, /worker +weights +gradients +optimizer +activations +in all\n/);
  assert.match(output, /^ +0 +1\.0 MiB +1\.0 MiB +2\.0 MiB +34\.0 MiB +38\.0 MiB$/m);
  const [first] = JSON.parse(run(`gpipe ${sizes} --format json`).output).memory;
  assert.equal(first.activations, 32 * 2 ** 20);
  assert.throws(() => run(`gpipe ${sizes} --memory-limit 30MiB`), {
    name: "RangeError",
    message: "Cannot make the schedule gpipe: each worker must need at most 30.0 MiB, received " +
      "36.0 MiB on worker 0, 4.0 MiB of it for weights, gradients and optimizer",
  });
  const compared = run(`compare ${sizes} --memory-limit 30MiB`).output;
  assert.match(compared, /^1f1b .* MiB$/m);
  assert.match(compared, /^ {2}gpipe: each worker must need at most 30\.0 MiB/m);
  const again = run(`gpipe ${sizes} --kept-bytes 1MiB --memory-limit 30MiB --recompute-ahead`);
  assert.match(again.output, /R0B0/);
  assert.throws(() => run("gpipe --workers 2 --micro-batches 2 --memory-limit 1GiB"), TypeError);
});

Deno.test("bad input is told in one sentence", () => {
  for (const [line, name, message] of BAD) {
    assert.throws(() => run(line), (error: Error) => {
      assert.match(error.name, new RegExp(`^(${name})$`), line);
      assert.match(error.message, message, line);
      assert.doesNotMatch(error.message, /\n/);
      return true;
    });
  }
});

Deno.test("jitter shows what message-driven schedules take where times vary, and what auto chooses", () => {
  const { output } = run("jitter --workers 4 --micro-batches 8 --draws 4");
  const rows = output.split("\n");
  assert.match(rows[0]!, /^schedule +limit +order +mean +least +most$/);
  assert.match(rows[1]!, /^1f1b +\d/);
  assert.equal(rows.length, 1 + 11 + 3);
  const told = /^--pipeline-limit (\d+) --order (\S+): /.exec(rows.at(-2)!);
  const size = "--workers 4 --micro-batches 8";
  const auto = run(`message-driven ${size} --pipeline-limit auto --order auto --format csv`);
  const fixed = run(
    `message-driven ${size} --pipeline-limit ${told![1]} --order ${told![2]} --format csv`,
  );
  assert.equal(auto.output, fixed.output);
  const grid = run(`message-driven ${size} --pipeline-limit auto`).output;
  assert.match(grid, /\n--pipeline-limit \d+ --order fifo: of 5 the fewest in flight/);
  const records = JSON.parse(
    run(`jitter ${size} --order fifo --slow-worker 1,2 --draws 2 --format json`).output,
  );
  assert.equal(records.length, 6);
  assert.deepEqual(Object.keys(records[1]), [
    "name",
    "pipelineLimit",
    "order",
    "count",
    "mean",
    "least",
    "most",
  ]);
});

Deno.test("auto is for message-driven, and a slow worker is a worker and how slow", () => {
  assert.throws(() => run("chimera-greedy --workers 4 --micro-batches 8 --pipeline-limit auto"), {
    name: "RangeError",
    message:
      "Cannot use --pipeline-limit auto: the schedule must be message-driven, received chimera-greedy",
  });
  for (const text of ["1", "1,0", "1,2,3", "x,2"]) {
    assert.throws(() => run(`jitter --workers 4 --micro-batches 8 --slow-worker ${text}`), {
      name: "RangeError",
      message:
        `Cannot use --slow-worker: it must be a worker and a number above 0, such as 1,1.5, received "${text}"`,
    });
  }
  assert.throws(() => run("message-driven --workers 4 --micro-batches 8 --pipeline-limit 0"), {
    message: 'Cannot use --pipeline-limit: it must be a whole number from 1, or auto, received "0"',
  });
});
