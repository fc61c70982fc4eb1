/** `troupe runs`, `plot` and `compare`: what they print and draw. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { drawLosses } from "../../../console/run_files/charts/loss_svg.ts";
import { openCurve, readCurves } from "../../../console/run_files/charts/loss_curves.ts";
import { textChart } from "../../../console/run_files/charts/text_chart.ts";
import { readRun } from "../../../console/run_files/read_run.ts";
import { summarizeRun } from "../../../console/run_files/summarize_run.ts";
import { folderTest } from "../../in_folder.ts";
import { runTroupe } from "../command.ts";
import { measured, writeRun } from "./runs_helper.ts";

const falling = (count: number) =>
  Array.from({ length: count }, (_, i) => [
    measured(i + 1, 5 - i / count),
    ...i % 10 === 0 ? [measured(i + 1, 5.5 - i / count, "evaluation")] : [],
  ]).flat();

Deno.test("a curve has so many points as it may, and their mean is that of all", () => {
  for (const count of [1, 7, 8, 9, 1000, 12_345]) {
    const curve = openCurve(8);
    for (let step = 1; step <= count; step++) curve.add({ step, loss: step % 2 });
    const points = curve.points();
    assert.ok(points.length >= Math.min(count, 8) && points.length <= 16, `${points.length}`);
    assert.ok(points.every(({ step }, i) => i === 0 || step > points[i - 1]!.step));
    assert.ok(points[0]!.step >= 1 && points.at(-1)!.step <= count);
  }
});

folderTest("runs are listed with what is wrong with others", async (folder) => {
  for (const n of [1, 2, 10]) await writeRun(join(folder, `gpt-${n}`), falling(n));
  await writeRun(join(folder, "new"), [], { version: 9 });
  await Deno.mkdir(join(folder, "other"));
  const { code, stdout, stderr } = await runTroupe(["runs", folder]);
  assert.equal(code, 0, stderr);
  assert.match(stderr, /^Cannot read \S+run.json: its version must be 1, received "9"\n$/);
  assert.deepEqual(stdout.trimEnd().split("\n").map((line) => line.split(/  +/)), [
    [
      "run",
      "state",
      "steps",
      "loss",
      "best held-out",
      "tokens/s",
      "model",
      "parameters",
      "started (UTC)",
    ],
    ["gpt-1", "stopped", "1/40", "5.000", "5.500", "100", "gpt", "1,234", "2026-01-02 03:04"],
    ["gpt-2", "stopped", "2/40", "4.500", "5.500", "200", "gpt", "1,234", "2026-01-02 03:04"],
    ["gpt-10", "stopped", "10/40", "4.100", "5.500", "600", "gpt", "1,234", "2026-01-02 03:04"],
  ]);
  const json = await runTroupe(["runs", join(folder, "gpt-10"), "--json"]);
  assert.equal(JSON.parse(json.stdout).steps, 10);
  const none = await runTroupe(["runs", join(folder, "other")]);
  assert.match(none.stdout, /^No runs in \S+; begin one with: /);
});

folderTest(
  "a loss is drawn for light and dark pages, with axes, a title and words",
  async (folder) => {
    const run = await readRun(await writeRun(join(folder, "a<b>&c"), falling(2000)));
    const svg = await drawLosses([readCurves(run)]);
    assert.match(
      svg,
      /^<svg [^>]*role="img"><title>Loss of a&lt;b&gt;&amp;c<\/title>/,
    );
    assert.match(
      svg,
      /<desc>[^<]*: loss from 5.000 at step \d+ to 4.00\d at step \d+;/,
    );
    assert.match(svg, /@media \(prefers-color-scheme:dark\)/);
    for (const text of ["optimizer step", "loss (nats a prediction)", "held-out loss"]) {
      assert.ok(svg.includes(`>${text}<`), text);
    }
    assert.doesNotMatch(svg, /<b>|<script|href="http|url\(/);
    assert.ok(svg.length < 100_000, "however long a run was");
    const paths = [...svg.matchAll(/<path [^>]*stroke="(#\w+)"/g)].map(([, colour]) => colour);
    assert.ok(paths.includes("#0072b2") && paths.includes("#d55e00"), `${paths}`);
  },
);

folderTest("runs are compared: what they came to, what differs, both losses", async (folder) => {
  const [one, two] = [join(folder, "one"), join(folder, "two")];
  await writeRun(one, falling(30));
  await writeRun(two, falling(20), { flags: { steps: 40, lr: 0.01, out: "b" } });
  const out = join(folder, "both.svg");
  const { code, stdout, stderr } = await runTroupe(["compare", one, two, "--out", out]);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /\nloss +4.0333 +4.0500\n/);
  assert.match(stdout, /\nWhat differs in how they were made:\nlr +0.001 +0.01\n\n$/);
  assert.match(await Deno.readTextFile(out), />1: one<[^]*>2: two</);

  const chart = textChart([readCurves(await readRun(one)), readCurves(await readRun(two))], 40);
  assert.ok(chart.every((line) => [...line].length <= 40), chart.join("\n"));
  assert.deepEqual(chart.slice(-2), ["  · one, o held-out", "  + two, x held-out"]);
  assert.ok("·o+x".split("").every((mark) => chart.slice(0, 13).join("").includes(mark)));
});

folderTest("numbers of a stranger's run break no chart", async (folder) => {
  const losses = [1e308, -1e308, 1e99, -1e99, 1, 1e-320].map((loss, i) => measured(i + 1, loss));
  const far = measured(Number.MAX_SAFE_INTEGER, 1), end = { step: "x", reason: [] };
  const run = await readRun(await writeRun(folder, [...losses, far], { end }));
  const curves = readCurves(run);
  assert.equal(curves.training.length, 5);
  assert.ok(textChart([curves], 30).every((line) => [...line].length <= 40));
  assert.match(await drawLosses([curves]), /^<svg [^]*<\/svg>\n$/);
  assert.equal(summarizeRun(run).steps, Number.MAX_SAFE_INTEGER);
});

folderTest("what cannot be drawn or written is refused in one sentence", async (folder) => {
  const empty = await writeRun(join(folder, "empty"), []);
  const run = await writeRun(join(folder, "run"), falling(3));
  for (
    const [args, code, reason] of [
      [["plot"], 2, /^Cannot plot: one run must be named, received 0\n$/],
      [["plot", empty], 2, /its metrics.jsonl must have losses, received none\n$/],
      [["compare", run], 2, /the number of runs must be from 2 to 6, received 1\n$/],
      [["plot", join(folder, "none")], 2, /^Cannot read the run "/],
      [["plot", run, "--out", join(folder, "no", "x.svg")], 1, /^Cannot write \S+x.svg: /],
      [["runs", run, run], 2, /one folder may be named/],
    ] as const
  ) {
    const outcome = await runTroupe(args);
    assert.equal(outcome.code, code, outcome.stderr);
    assert.match(outcome.stderr, reason);
    assert.equal(outcome.stderr.split("\n").length, 2, outcome.stderr);
  }
});
