/** The dashboard in a browser. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { processesFrom } from "../../../console/train/memory_report.ts";
import { readMetrics } from "../../../actors/run_folder/metrics_file.ts";
import { DATA, MODEL, TABLE } from "../../actors/run/sides.ts";
import { trained } from "../../actors/runs.ts";
import { assertAccessible, type Page, pageTest, until } from "../../browser.ts";
import { serveDashboard } from "../../../console/dashboard/serve.ts";
import { RunView } from "../../../console/dashboard/view.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { printedHere, TINY_MODEL } from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** Starts a run of two workers and four micro-batches, and opens its page. */
async function openRun(page: Page, flags: string, out: string): Promise<Running> {
  const pipeline = [...TINY_MODEL, "--workers", "2", "--micro-batches", "4", "--dashboard"];
  const run = new Running([...TRAIN, ...pipeline, ...flags.split(" "), "--out", out]);
  await run.printed("stderr", /Dashboard: \S+\n/);
  await page.goto(/Dashboard: (\S+)/.exec(run.stderr)![1]!);
  return run;
}

/** Reads the number of drawn points of the loss from its description. */
const POINTS = `Number(/(\\d+) points/.exec(document.querySelector("#loss").ariaLabel)?.[1] ?? 0)`;

const isStatus = (status: string) =>
  `document.querySelector("#status").dataset.status === "${status}"`;

/** Returns the shown step, and the actions of each worker from left to right. */
const shownBoxes = (page: Page) =>
  page.evaluate<{ step: number; workers: string[][] }>(`({
    step: Number(/step ([\\d,]+)/.exec(document.querySelector("#shown-step").textContent)[1]),
    workers: [...document.querySelectorAll("#words ol")].map((list) =>
      [...list.querySelectorAll(".done .name")].map(({ textContent }) => textContent)
        .filter((name) => /^\\d/.test(name))),
  })`);

/** Returns the actions in the journal, for each worker and step. */
async function journalled(path: string): Promise<string[][][]> {
  const shown = (await printedHere("journal", "show", path)).split("\n");
  return [0, 1].map((worker) => {
    const steps: string[][] = [];
    for (const line of shown) {
      const [, type, did] =
        RegExp(`worker-${worker} +< \\S+ (\\w+) +[0-9a-f]{16} *(.*)`).exec(line) ?? [];
      if (type === "Begin") steps.push([]);
      if (type === "Dispatch" && did) steps.at(-1)!.push(did);
    }
    return steps;
  });
}

/** Returns the number of colours of a canvas: 1 if nothing is drawn. */
const colorsOn = (page: Page, selector: string) =>
  page.evaluate<number>(`(() => {
    const canvas = document.querySelector("${selector}");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  })()`);

/** An active run: its curves grow, and its boxes are in the order of the journal. */
async function followRun(page: Page, folder: string): Promise<void> {
  const journal = join(folder, "journal"), out = join(folder, "<img src=x onerror=alert(1)>");
  const flags =
    "--runtime local --schedule message-driven --steps 100000 --eval-every 10 --emulate-link 20000,10";
  const run = await openRun(page, `${flags} --journal ${journal}`, out);
  await until(page, `${POINTS} > 2`);
  const early = await page.evaluate<number>(POINTS);
  await until(page, `${POINTS} > ${early}`);
  await page.click("#listing summary");
  await page.click("#live");
  const during = await shownBoxes(page);
  assert.ok(await colorsOn(page, "#picture canvas") > 8, "boxes are drawn");
  assert.ok(await colorsOn(page, "#loss canvas") > 3, "curves are drawn");

  run.interrupt("process");
  const { code, stderr } = await run.end(HANG_LIMIT_MS);
  assert.equal(code, 130, stderr);
  await until(page, isStatus("interrupted"));
  assert.match((await page.textContent("#events"))!, /Checkpoint/);
  await page.click("#live");
  const last = await shownBoxes(page), expected = await journalled(journal);
  assert.equal(last.step, expected[0]!.length);
  assert.equal(await page.evaluate(POINTS), last.step + 1, "each step, and one before them");
  for (const { step, workers } of [during, last]) {
    assert.deepEqual(workers, expected.map((steps) => steps[step - 1]), `step ${step}`);
  }
  assert.equal(await page.textContent("#title"), out);
  assert.equal(await page.evaluate("document.querySelectorAll('img').length"), 0);
  assert.match((await page.textContent("#note"))!, /troupe dashboard /);
  assert.match((await page.textContent("#facts"))!, /message-driven/);
}

/** A run that loses a worker: the page shows it, and its restart. */
async function loseWorker(page: Page, folder: string): Promise<void> {
  const flags = "--schedule 1f1b --isolation process --emulate-link 20000,10 --steps 100000 --json";
  const run = await openRun(page, flags, join(folder, "lossy"));
  await until(page, `${POINTS} > 1`);
  const [, worker] = processesFrom(run.pid);
  Deno.kill(worker!.pid, "SIGKILL");
  await until(page, `document.querySelector("#events .failure") !== null`);
  assert.match((await page.textContent("#events"))!, /worker-\d .*SIGKILL/);
  assert.match((await page.textContent("#actors .restarted"))!, /restarted once/);
  assert.match((await page.textContent("#workers tr.restarted td:last-child"))!, /^1$/);
  const marks = `(() => {
    const canvas = document.querySelector("#loss canvas"), { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    const isRed = (at) => data[at + 3] > 99 && data[at] > 150 && data[at + 1] < 60;
    return Array.from({ length: width * height }, (_, i) => 4 * i).filter(isRed).length;
  })()`;
  assert.ok(await page.evaluate<number>(marks) > 20, "the loss has a red line at the failure");
  const said = / Failure after step \d/;
  assert.match(await page.evaluate<string>("document.querySelector('#loss').ariaLabel"), said);
  const points = await page.evaluate<number>(POINTS);
  await until(page, `${POINTS} > ${points}`);
  run.interrupt("process");
  assert.equal((await run.end(HANG_LIMIT_MS)).code, 130);
}

/** A finished run: its page can be read without a mouse, by screen readers, on any screen. */
async function readPage(page: Page, folder: string): Promise<void> {
  const flags = "--runtime local --steps 20 --eval-every 5 --dashboard-stay";
  const run = await openRun(page, flags, join(folder, "run"));
  await until(page, isStatus("finished"));
  await page.click("#listing summary");
  await assertAccessible(page);
  const curves = `document.querySelector("#loss canvas").toDataURL()`;
  const smoother = `(() => {
    const slider = document.querySelector("#smoothing");
    slider.value = 20;
    slider.dispatchEvent(new Event("input"));
  })()`;
  for (const change of [() => page.click("#log"), () => page.evaluate(smoother)]) {
    const before = await page.evaluate<string>(curves);
    await change();
    await until(page, `${curves} !== ${JSON.stringify(before)}`);
  }
  await page.click("#outliers");
  const pressed = `document.querySelectorAll(".curves [aria-pressed=true]").length`;
  assert.equal(await page.evaluate(pressed), 2);
  const label = `document.querySelector("#picture").ariaLabel`;
  await page.evaluate(`document.querySelector("#picture").focus()`);
  const whole = JSON.stringify(await page.evaluate<string>(label));
  for (const key of ["ArrowUp", "ArrowRight", "Shift+ArrowRight"]) await page.keyboard.press(key);
  await until(page, `${label} !== ${whole}`);
  assert.match((await page.textContent("#description"))!, /^worker 0, expected · 0F0: forward of/);
  await page.keyboard.press("Home");
  await until(page, `${label} === ${whole}`);
  await page.keyboard.press("PageUp");
  assert.notEqual((await shownBoxes(page)).step, 20);

  await run.printed("stderr", /The dashboard stays until Ctrl-C/);
  run.interrupt("process"); // the run is done: this ends the dashboard
  assert.equal((await run.end(HANG_LIMIT_MS)).code, 0);
}

/** The run of a script: its metrics are among the figures. */
async function readScript(page: Page, folder: string): Promise<void> {
  const out = join(folder, "script"), evaluation = { every: 3, batches: TABLE.inOrder(4) };
  await trained({
    ...{ model: MODEL, data: DATA, epochs: 1, out, evaluation },
    ...{ device: "reference", runtime: "local" },
  });
  const shown = new Running(["run", "-A", "cli.ts", "dashboard", out]);
  await shown.printed("stdout", /Dashboard: \S+\n/);
  await page.goto(/Dashboard: (\S+)/.exec(shown.stdout)![1]!);
  await until(page, isStatus("finished"));
  const { accuracy } = [...readMetrics(out)].at(-1)!.metrics.metrics!;
  const figures = (await page.textContent("#figures"))!;
  const [, held] = /Accuracy *[\d.]+ *held out ([\d.]+) at step 3/.exec(figures) ?? [];
  assert.ok(Math.abs(Number(held) - accuracy!) < 1e-3, `${accuracy}: ${figures}`);
  shown.interrupt("process");
  await shown.end(HANG_LIMIT_MS);
}

/** A run of jobs: each has its curve, also one that joins. */
async function readJobs(page: Page): Promise<void> {
  const view = new RunView();
  const add = (job: string, from: number, to: number) => {
    for (let step = from; step <= to; step++) {
      view.addMetrics({ ...{ type: "step", step, job, loss: 9 / step }, ...PLAIN_METRICS });
    }
  };
  add("low", 1, 20);
  await using dashboard = serveDashboard(view, 0);
  await page.goto(dashboard.url);
  const names = `[...document.querySelectorAll("figure:has(#loss) .curve")]
    .map(({ textContent }) => textContent).join()`;
  await until(page, `${names} === "low" && ${POINTS} === 20`);
  const colors = await colorsOn(page, "#loss canvas");
  for (let step = 21; step <= 30; step++) ["low", "high"].forEach((job) => add(job, step, step));
  await until(page, `${names} === "low,high" && ${POINTS} === 30`);
  assert.ok(await colorsOn(page, "#loss canvas") > colors, "the curves have colors of their own");
  view.setStatus({ status: "finished" });
  await until(page, isStatus("finished"));
}

/** A loss that is not finite is left out of its mean, and long names stay in their place. */
async function readSkips(page: Page): Promise<void> {
  const view = new RunView();
  for (let step = 1; step <= 30; step++) {
    const row = step % 5
      ? { type: "step", loss: 4 } as const
      : { type: "skip", loss: NaN } as const;
    view.addMetrics({ ...row, step, metrics: { ["squared".repeat(9)]: step }, ...PLAIN_METRICS });
  }
  await using dashboard = serveDashboard(view, 0);
  await page.goto(dashboard.url);
  await until(page, `${POINTS} === 30`);
  const loss = await page.evaluate<string>("document.querySelector('#loss').ariaLabel");
  assert.match(loss, / smoothed 4$/);
  const isWithin = `[...document.querySelectorAll(".figure")]
    .every(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)`;
  assert.ok(await page.evaluate<boolean>(isWithin));
  view.setStatus({ status: "finished" });
  await until(page, isStatus("finished"));
}

const PLAIN_METRICS = { time: 1, seconds: 1, tokens: 1, rss: 1, tokensPerSecond: 5 } as const;

pageTest("the page follows a run, shows a lost worker, and is accessible", async (page, folder) => {
  for (const show of [readJobs, readSkips, followRun, loseWorker, readPage, readScript]) {
    await show(page, folder);
  }
});
