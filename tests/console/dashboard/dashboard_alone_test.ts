/** The dashboard in a browser, of runs as their users start them. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { delay } from "@std/async/delay";
import { processesFrom } from "../../../console/train/resident_memory.ts";
import { npmPackageFolder } from "../../../kernels/mod.ts";
import { type Page, pageTest } from "../../browser.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { inFolder, runTroupe, TINY_MODEL } from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** Two workers, four micro-batches. */
const PIPELINE = [...TINY_MODEL, "--workers", "2", "--micro-batches", "4", "--dashboard"];

/** Says what is wrong with a page for those who cannot see it, or see little. */
const AXE = { name: "axe-core", version: "4.14.1", megabytes: 3 };

/** Waits until the page says so. Its own scripts may not be made of text, so it is asked from outside. */
async function until(page: Page, script: string): Promise<void> {
  const began = performance.now();
  while (!await page.evaluate<boolean>(script)) {
    assert.ok(performance.now() - began < HANG_LIMIT_MS, `${script} never became true`);
    await delay(50);
  }
}

async function urlOf(run: Running): Promise<string> {
  await run.printed("stderr", /Dashboard: \S+\n/);
  return /Dashboard: (\S+)/.exec(run.stderr)![1]!;
}

/** The points of the loss that are drawn, as the page tells those who do not see them. */
const POINTS = `Number(/(\\d+) points/.exec(document.querySelector("#loss").ariaLabel)?.[1] ?? 0)`;

const isStatus = (status: string) =>
  `document.querySelector("#status").dataset.status === "${status}"`;

/** The step that is shown, and for each worker the actions that have boxes, from left to right. */
const shownBoxes = (page: Page) =>
  page.evaluate<{ step: number; workers: string[][] }>(`({
    step: Number(/step ([\\d,]+)/.exec(document.querySelector("#shown-step").textContent)[1]),
    workers: [...document.querySelectorAll("#words ol")].map((list) =>
      [...list.querySelectorAll(".done .name")].map(({ textContent }) => textContent)
        .filter((name) => /^\\d/.test(name))),
  })`);

/** For each worker and step what the journal says that the worker took, in this order. */
async function journalled(path: string): Promise<string[][][]> {
  const { stdout } = await runTroupe(["journal", "show", path]);
  return [0, 1].map((worker) => {
    const steps: string[][] = [];
    for (const line of stdout.split("\n")) {
      const [, type, did] =
        RegExp(`worker-${worker} +< \\S+ (\\w+) +[0-9a-f]{16} *(.*)`).exec(line) ?? [];
      if (type === "Begin") steps.push([]);
      if (type === "Dispatch" && did) steps.at(-1)!.push(did);
    }
    return steps;
  });
}

/** Colours of a canvas: of one on which nothing is drawn there is one. */
const colorsOn = (page: Page, selector: string) =>
  page.evaluate<number>(`(() => {
    const canvas = document.querySelector("${selector}");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  })()`);

pageTest(
  "while a run goes on its curves grow and its boxes come in the order of the journal; after its end the page keeps them",
  (page) =>
    inFolder(async (folder) => {
      const journal = join(folder, "journal"), out = join(folder, "<img src=x onerror=alert(1)>");
      const run = new Running([
        ...TRAIN,
        ...PIPELINE,
        ...["--schedule", "message-driven", "--steps", "60", "--eval-every", "10"],
        ...["--journal", journal, "--out", out],
      ]);
      await page.goto(await urlOf(run));
      await until(page, `${POINTS} > 2`);
      const early = await page.evaluate<number>(POINTS);
      await until(page, `${POINTS} > ${early}`);
      await page.click("#listing summary");
      await page.click("#live");
      const during = await shownBoxes(page);
      assert.ok(await colorsOn(page, "#picture canvas") > 8, "boxes are drawn");
      assert.ok(await colorsOn(page, "#loss canvas") > 3, "curves are drawn");

      const { code, stderr } = await run.end(HANG_LIMIT_MS);
      assert.equal(code, 0, stderr);
      await until(page, isStatus("finished"));
      assert.equal(await page.evaluate(POINTS), 61, "of 60 steps and of what held before them");
      await page.click("#live");
      const last = await shownBoxes(page), expected = await journalled(journal);
      assert.equal(last.step, 60);
      for (const { step, workers } of [during, last]) {
        assert.deepEqual(workers, expected.map((steps) => steps[step - 1]), `step ${step}`);
      }
      assert.equal(await page.textContent("#title"), out);
      assert.equal(await page.evaluate("document.querySelectorAll('img').length"), 0);
      assert.match((await page.textContent("#note"))!, /troupe dashboard /);
      assert.match((await page.textContent("#facts"))!, /message-driven/);
    }),
);

pageTest(
  "a worker that is killed shows, with its restart, and so does the Ctrl-C that ends the run",
  (page) =>
    inFolder(async (folder) => {
      const run = new Running([
        ...TRAIN,
        ...PIPELINE,
        ...["--schedule", "1f1b", "--isolation", "process", "--steps", "100000"],
        ...["--json", "--out", join(folder, "run")],
      ]);
      await page.goto(await urlOf(run));
      await until(page, `${POINTS} > 1`);
      const [, worker] = processesFrom(run.pid);
      Deno.kill(worker!.pid, "SIGKILL");
      await until(page, `document.querySelector("#events .failure") !== null`);
      assert.match((await page.textContent("#events"))!, /worker-\d .*SIGKILL/);
      assert.match((await page.textContent("#actors .restarted"))!, /restarted once/);
      assert.match((await page.textContent("#workers tr.restarted td:last-child"))!, /^1$/);
      const points = await page.evaluate<number>(POINTS);
      await until(page, `${POINTS} > ${points}`);

      run.interrupt("process");
      assert.equal((await run.end(HANG_LIMIT_MS)).code, 130);
      await until(page, isStatus("interrupted"));
      assert.match((await page.textContent("#events"))!, /Checkpoint/);
    }),
);

pageTest(
  "the page serves who sees little or nothing, has no mouse, or a narrow screen, in light and dark",
  (page) =>
    inFolder(async (folder) => {
      const run = new Running([
        ...TRAIN,
        ...PIPELINE,
        ...["--steps", "20", "--eval-every", "5", "--out", join(folder, "run"), "--dashboard-stay"],
      ]);
      await page.goto(await urlOf(run));
      await until(page, isStatus("finished"));
      await page.click("#listing summary");
      const folderOfAxe = await npmPackageFolder(AXE);
      await page.evaluate(await Deno.readTextFile(new URL("axe.min.js", folderOfAxe)));
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        for (const width of [360, 1280]) {
          await page.setViewportSize({ width, height: 800 });
          const wrong = await page.evaluate<unknown[]>(`axe.run().then(({ violations }) =>
            violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]))`);
          assert.deepEqual(wrong, [], `${colorScheme}, ${width} pixels`);
          assert.equal(await page.evaluate("document.documentElement.scrollWidth"), width);
        }
      }
      await page.evaluate(`document.querySelector("#picture").focus()`);
      const seen = () => page.evaluate<string>(`document.querySelector("#picture").ariaLabel`);
      const whole = await seen();
      for (const key of ["ArrowUp", "ArrowRight", "Shift+ArrowRight"]) {
        await page.keyboard.press(key);
      }
      await until(
        page,
        `document.querySelector("#picture").ariaLabel !== ${JSON.stringify(whole)}`,
      );
      assert.match((await page.textContent("#told"))!, /^worker 0 was to do · 0F0: forward of/);
      await page.keyboard.press("Home");
      await until(
        page,
        `document.querySelector("#picture").ariaLabel === ${JSON.stringify(whole)}`,
      );
      await page.keyboard.press("PageUp");
      assert.notEqual((await shownBoxes(page)).step, 20);

      run.interrupt("process"); // the run is done: this ends the dashboard
      assert.equal((await run.end(HANG_LIMIT_MS)).code, 0);
    }),
);
