/** The playground in a browser, opened from disk. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { buildPlayground } from "../../../console/playground/build.ts";
import { analyzeSide } from "../../../console/playground/page/play.ts";
import { readLink } from "../../../console/playground/page/settings.ts";
import { scheduleNames } from "../../../schedules/mod.ts";
import { shortNumber } from "../../../schedules/pictures/grid.ts";
import { assertAccessible, type Page, pageTest, until } from "../../browser.ts";
import { printedHere } from "../command.ts";

/** Opens the page with a state. */
async function open(page: Page, url: string, link: string): Promise<void> {
  await page.goto("about:blank");
  await page.goto(`${url}#${link}`);
  await until(page, `document.querySelector("#status").textContent !== ""`);
  await until(page, `document.querySelector(".summary:empty") === null`);
}

/** Returns the actions of each worker on one side, with their times. */
const wordsOf = (page: Page, side: string) =>
  page.evaluate<string[][]>(`[...document.querySelectorAll("#${side}-panel ol")].map((list) =>
    [...list.children].map(({ dataset }) => dataset)
      .filter(({ name }) => /^\\d/.test(name)).map(({ name, from, to }) =>
        name + " " + Number(from).toFixed(6) + " " + Number(to).toFixed(6)))`);

const SIZE = ["--workers", "4", "--micro-batches", "8"];

/** Returns the actions of each worker that `troupe schedule` prints, with their times. */
async function printedActions(name: string): Promise<string[][]> {
  const events = JSON.parse(await printedHere("schedule", name, ...SIZE, "--format", "trace"));
  const workers: string[][] = [];
  for (const { ph, name, tid, ts, dur } of events) {
    if (ph !== "X" || !/^\d+[FBIWR]\d/.test(name)) continue;
    const when = `${(ts / 1e3).toFixed(6)} ${((ts + dur) / 1e3).toFixed(6)}`;
    for (const one of name.split("&")) (workers[tid] ??= []).push(`${one} ${when}`);
  }
  return workers;
}

async function drawAll(page: Page, url: string): Promise<void> {
  for (const name of scheduleNames()) {
    await open(page, url, `a.schedule=${name}`);
    await page.click("#a-panel summary");
    await until(page, `document.querySelector("#a-panel ol") !== null`);
    const { makespan, bubbleRatio } = JSON.parse(
      await printedHere("schedule", name, ...SIZE, "--format", "json"),
    );
    assert.deepEqual(await wordsOf(page, "a"), await printedActions(name), name);
    const cells = await page.evaluate<string[]>(
      `[...document.querySelectorAll("#measures td:last-child")].map((one) => one.textContent)`,
    );
    assert.deepEqual(cells.slice(0, 2), [
      String(Number(makespan.toFixed(3))),
      `${(100 * bubbleRatio).toFixed(1)} %`,
    ], name);
  }
}

const LINK = "workers=6&microBatches=12&send=0.2&jitter=0.1&a.schedule=chimera&a.scale=halving&" +
  "b.schedule=message-driven&b.order=bf";

async function keepState(page: Page, url: string): Promise<void> {
  await open(page, url, "");
  const slide = (id: string, to: number) =>
    page.evaluate(`(() => {
      const slider = document.querySelector("#${id}").previousElementSibling;
      slider.value = ${to};
      slider.dispatchEvent(new Event("input"));
    })()`);
  const pick = (id: string, to: string) =>
    page.evaluate(`(() => {
      const select = document.querySelector("#${id}");
      select.value = "${to}";
      select.dispatchEvent(new Event("change"));
    })()`);
  const numbers = { workers: 6, microBatches: 12, send: 0.2, jitter: 0.1 };
  for (const [id, to] of Object.entries(numbers)) await slide(id, to);
  await pick("a-schedule", "chimera");
  await pick("a-scale", "halving");
  await pick("b-schedule", "message-driven");
  await pick("b-order", "bf");
  await until(page, `location.hash === "#${LINK}"`);
  const { shared, sides } = readLink(LINK);
  for (const [i, side] of sides.entries()) {
    const time = shortNumber(analyzeSide(shared, side).makespan);
    const summary = `document.querySelector("#${"ab"[i]}-panel .summary").textContent`;
    await until(page, `${summary}.includes("Time ${time},")`);
  }
  const shown = async () => {
    for (const side of ["a", "b"]) await page.click(`#${side}-panel summary`);
    await until(page, `document.querySelectorAll("ol").length === 12`);
    return [await wordsOf(page, "a"), await wordsOf(page, "b")];
  };
  const before = await shown();
  await open(page, url, LINK);
  assert.deepEqual(await shown(), before);
  await page.evaluate(`performance.clearMeasures()`);
  for (let i = 0; i < 20; i++) {
    await slide("forward", 0.5 + i / 20);
    await until(page, `performance.getEntriesByName("redraw").length > ${i}`);
  }
}

async function useIt(page: Page, url: string): Promise<void> {
  const link = "a.schedule=1f1b&b.schedule=own&b.lists=0F0_0B0!1F0_1B0";
  await open(page, url, link);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter"); // skips to the timelines, and changes nothing
  await until(page, `document.activeElement.id === "panels"`);
  await until(page, `location.hash === ${JSON.stringify(`#${new URLSearchParams(link)}`)}`);
  await page.evaluate(`document.querySelector("#a-panel .timeline").focus()`);
  await page.keyboard.press("ArrowRight");
  const chosen = () => page.textContent("#a-panel .chosen");
  const wanted =
    "worker 0: 0F0, forward of stage 0, micro-batch 0, from 0 to 1, on the critical path";
  assert.equal(await chosen(), wanted);
  await page.keyboard.press("ArrowDown");
  const expected = "worker 1: bubble from 0 to 1: before its first action (1F0 waits for 0F0)";
  assert.equal(await chosen(), expected);
  await page.fill("#forward", "18"); // above its limit: refused where it is seen
  const border = `getComputedStyle(document.querySelector("#forward")).borderTopWidth`;
  assert.equal(await page.evaluate(border), "2px");
  await page.fill("#forward", "1");
  assert.equal(await page.evaluate(border), "1px");
  await page.fill("#b-lists", "0F0,0B0\n1F0");
  await until(page, `document.querySelector("#b-panel .error").hidden === false`);
  assert.match((await page.textContent("#b-panel .error"))!, /^Cannot .* 1B0/);
  await page.fill("#b-lists", "0F0,0B0\n1F0,1B0");
  await until(page, `document.querySelector("#b-panel .error").hidden`);
  await page.evaluate(`(() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([new Uint8Array(3e6)], "no lists"));
    document.querySelector("#b-panel").dispatchEvent(new DragEvent("drop", { dataTransfer }));
    const missed = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
    document.querySelector("header").dispatchEvent(missed);
    if (!missed.defaultPrevented) throw new Error("The file would replace the page");
  })()`);
  await until(page, `document.querySelector("#b-panel .error").hidden === false`);
  assert.match((await page.textContent("#b-panel .error"))!, /must have at most 2 MiB of text/);
  const isTransparent = `(() => {
    const canvas = document.querySelector("#a-panel canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value, i) => i % 4 === 3 && value < 255);
  })()`;
  assert.equal(await page.evaluate(isTransparent), false, "a PNG needs the colour below it");
  await page.evaluate(`(() => {
    let blob;
    globalThis.files = {};
    URL.createObjectURL = (one) => (blob = one, "blob:none");
    HTMLAnchorElement.prototype.click = async function () {
      files[this.download] = await blob.text();
    };
    const slider = document.querySelector("#microBatches").previousElementSibling;
    slider.value = 9;
    slider.dispatchEvent(new Event("input"));
    for (const name of ["Save as SVG", "Save lists as CSV"]) {
      document.querySelector(\`[aria-label="\${name}, schedule A"]\`).click();
    }
  })()`);
  await until(page, `Object.keys(files).length === 2`);
  const files = await page.evaluate<Record<string, string>>(`files`);
  for (const format of ["svg", "csv"]) {
    const shown = ["--workers", "4", "--micro-batches", "9", "--format", format];
    assert.equal(files[`1f1b.${format}`], await printedHere("schedule", "1f1b", ...shown));
  }
  await until(page, `document.querySelector("#a-panel .summary").textContent.includes("Time 36,")`);
  await page.click("#second");
  assert.equal(await page.evaluate(`document.querySelectorAll(".panel").length`), 1);
  await page.click("#second");
  await assertAccessible(page);
}

pageTest("the playground draws as the command does, and keeps its state", async (page, folder) => {
  const file = join(folder, "playground.html");
  await Deno.writeTextFile(file, await buildPlayground());
  for (const act of [drawAll, keepState, useIt]) await act(page, pathToFileURL(file).href);
});
