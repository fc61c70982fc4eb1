/**
 * Chromium, driven by npm's playwright-core, for tests of pages. Where it is not installed they are
 * skipped, each by its name. Such tests are in files whose names end in `_alone_test.ts`.
 */

import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import { HANG_LIMIT_MS } from "./hang_limit.ts";
import { inFolder } from "./in_folder.ts";
import { testNeeding } from "./needs.ts";
import { npmPackageFolder } from "../kernels/mod.ts";

/** Where Debian's package puts it. */
const CHROMIUM = "/usr/bin/chromium";

/** Not among the imports of the package: whoever uses it would fetch it. */
const PLAYWRIGHT = { name: "playwright-core", version: "1.65.1", megabytes: 14 };

/** Finds accessibility problems of a page. */
const AXE = { name: "axe-core", version: "4.14.1", megabytes: 3 };

/** What tests use of playwright's `Page`; its documentation says what each does. */
export interface Page {
  goto(url: string): Promise<unknown>;
  reload(): Promise<unknown>;
  setDefaultTimeout(ms: number): void;
  on(event: "console", listener: (message: ConsoleMessage) => void): void;
  on(event: "pageerror", listener: (error: Error) => void): void;
  on(event: "request", listener: (request: { url(): string }) => void): void;
  click(selector: string): Promise<void>;
  fill(selector: string, value: string): Promise<void>;
  hover(selector: string): Promise<void>;
  textContent(selector: string): Promise<string | null>;
  evaluate<T>(script: string): Promise<T>;
  waitForFunction(script: string): Promise<unknown>;
  screenshot(options: { path: string; fullPage?: boolean }): Promise<unknown>;
  setViewportSize(size: { width: number; height: number }): Promise<void>;
  emulateMedia(media: { colorScheme: "light" | "dark" }): Promise<void>;
  readonly keyboard: { press(key: string): Promise<void> };
}

/** What a page writes to the console. */
export interface ConsoleMessage {
  type(): string;
  text(): string;
}

interface Browser {
  newPage(): Promise<Page>;
  close(): Promise<void>;
}

interface Playwright {
  readonly chromium: {
    launch(
      options: { executablePath: string; args: readonly string[]; timeout: number },
    ): Promise<Browser>;
  };
}

function hasChromium(): boolean {
  try {
    return Deno.statSync(CHROMIUM).isFile;
  } catch {
    return false;
  }
}

/**
 * Registers a test of a page, with a folder. It fails, too, when the page writes an error to its
 * console, throws one, or sends a request to another machine.
 */
export function pageTest(name: string, fn: (page: Page, folder: string) => Promise<void>): void {
  const test = () => inFolder((folder) => openPage((page) => fn(page, folder)));
  testNeeding({ isThere: hasChromium(), reason: "Debian's chromium" }, name, test);
}

async function openPage(fn: (page: Page) => Promise<void>): Promise<void> {
  const folder = await npmPackageFolder(PLAYWRIGHT);
  const { chromium }: Playwright = await import(new URL("index.mjs", folder).href);
  // In containers its sandbox does not start for the user root, and /dev/shm may be small.
  const args = ["--no-sandbox", "--disable-dev-shm-usage"], timeout = HANG_LIMIT_MS;
  const browser = await chromium.launch({ executablePath: CHROMIUM, args, timeout });
  const complaints: string[] = [];
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(HANG_LIMIT_MS);
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) complaints.push(message.text());
    });
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("request", (request) => {
      const { protocol, hostname } = new URL(request.url());
      const isOwn = hostname === "127.0.0.1" || ["data:", "blob:", "file:"].includes(protocol);
      if (!isOwn) complaints.push(`a request to ${request.url()}`);
    });
    await fn(page);
  } finally {
    await browser.close();
  }
  assert.deepEqual(complaints, [], "of the page: on its console, or what it asks others for");
}

/** Checks that a page is accessible on small and large screens, in light and dark colours. */
export async function assertAccessible(page: Page): Promise<void> {
  const folder = await npmPackageFolder(AXE);
  await page.evaluate(await Deno.readTextFile(new URL("axe.min.js", folder)));
  for (const [colorScheme, width] of [["light", 360], ["dark", 1280]] as const) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 800 });
    const wrong = await page.evaluate<unknown[]>(`axe.run().then(({ violations }) =>
      violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]))`);
    assert.deepEqual(wrong, [], `${colorScheme}, ${width} pixels`);
    assert.equal(await page.evaluate("document.documentElement.scrollWidth"), width);
  }
}

/** Waits until a script is true on the page; the page itself must not evaluate text. */
export async function until(page: Page, script: string): Promise<void> {
  const began = performance.now();
  while (!await page.evaluate<boolean>(script)) {
    assert.ok(performance.now() - began < HANG_LIMIT_MS, `${script} never became true`);
    await delay(50);
  }
}
