/** Who may ask the dashboard's server for what, and what it tells. */

import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import { openRunView } from "../../../console/dashboard/view/run_view.ts";
import { serveDashboard } from "../../../console/dashboard/server/server.ts";
import type { News } from "../../../console/dashboard/view/view.ts";

/** One request with headers that `fetch` would not send; returns all of the answer. */
async function request(port: number, lines: readonly string[]): Promise<string> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  const text = [...lines, "connection: close", "", ""].join("\r\n");
  await connection.write(new TextEncoder().encode(text));
  return await new Response(connection.readable).text();
}

/** Waits until nobody listens any more. */
async function gone(port: number): Promise<void> {
  for (;;) {
    try {
      (await Deno.connect({ hostname: "127.0.0.1", port })).close();
    } catch {
      return;
    }
    await delay(20);
  }
}

/** The news of a stream of events, one at a time. */
async function* newsOf(url: string, signal: AbortSignal): AsyncGenerator<News> {
  const { body } = await fetch(`${url}events`, { signal });
  let text = "";
  for await (const part of body!.pipeThrough(new TextDecoderStream())) {
    const events = (text + part).split("\n\n");
    text = events.pop()!;
    for (const event of events) {
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (data) yield JSON.parse(data);
    }
  }
}

Deno.test("the page is served under its path and its address alone, for reading, and guards itself", async () => {
  await using dashboard = serveDashboard(openRunView(), 0);
  const { port, host, pathname } = new URL(dashboard.url), own = Number(port);
  const page = await request(own, [`GET ${pathname} HTTP/1.1`, `host: ${host}`]);
  assert.match(page, /^HTTP\/1\.1 200/);
  assert.match(page, /content-security-policy: default-src 'none'; script-src 'self';/);
  assert.match(page, /<title>Troupe<\/title>/);
  assert.match(pathname, /^\/[0-9a-f]{32}\/$/);
  const refused: [expected: number, first: string, host: string][] = [
    [421, `GET ${pathname} HTTP/1.1`, "troupe.example"],
    [421, `GET ${pathname} HTTP/1.1`, `127.0.0.1:${own + 1}`],
    [404, "GET / HTTP/1.1", host],
    [404, `GET /${"0".repeat(32)}/ HTTP/1.1`, host],
    [404, `GET ${pathname}../../deno.json HTTP/1.1`, host],
    [404, `GET ${pathname}%2e%2e%2fdeno.json HTTP/1.1`, host],
    [404, `GET ${pathname}deno.json HTTP/1.1`, host],
    [404, `GET http://[${pathname} HTTP/1.1`, host],
    [405, `POST ${pathname} HTTP/1.1`, host],
    [405, `DELETE ${pathname}events HTTP/1.1`, host],
  ];
  for (const [expected, first, host] of refused) {
    const answer = await request(own, [first, `host: ${host}`, "content-length: 0"]);
    assert.ok(answer.startsWith(`HTTP/1.1 ${expected}`), `${first}, ${host}: ${answer}`);
    assert.doesNotMatch(answer, /<title>|troupe\/troupe/);
  }
});

Deno.test("who opens the page is told all, then what is new, and the last of it at the end", async () => {
  const view = openRunView(), ending = new AbortController();
  const step = { type: "step", time: 0, seconds: 0, tokens: 0, rss: 0 } as const;
  view.addMetrics({ ...step, step: 1, loss: 5 });
  const dashboard = serveDashboard(view, 0);
  const news = newsOf(dashboard.url, ending.signal);
  const first = (await news.next()).value!;
  assert.deepEqual(first.metrics!.entries.map(({ loss }: { loss?: number }) => loss), [5]);
  view.addMetrics({ ...step, step: 2, loss: 4 });
  for (;;) {
    const { metrics } = (await news.next()).value!;
    if (metrics!.entries.at(-1)!.step !== 2) continue;
    assert.ok(metrics!.from <= 1);
    break;
  }
  view.stand({ status: "finished" });
  await dashboard[Symbol.asyncDispose]();
  const last = (await news.next()).value!;
  assert.equal(last.status!.status, "finished");
  assert.equal((await news.next()).done, true);
});

Deno.test("a page that does not read does not hold up the end", async () => {
  const view = openRunView(), dashboard = serveDashboard(view, 0);
  const { port, host, pathname } = new URL(dashboard.url);
  const connection = await Deno.connect({ hostname: "127.0.0.1", port: Number(port) });
  const ask = `GET ${pathname}events HTTP/1.1\r\nhost: ${host}\r\n\r\n`;
  await connection.write(new TextEncoder().encode(ask));
  await connection.read(new Uint8Array(16));
  view.stand({ note: "x".repeat(2 ** 24) });
  await dashboard[Symbol.asyncDispose]();
  connection.close();
  await gone(Number(port));
});

Deno.test("a port that another program has is told in a sentence", async () => {
  await using one = serveDashboard(openRunView(), 0);
  const port = Number(new URL(one.url).port);
  assert.throws(
    () => serveDashboard(openRunView(), port),
    new RangeError(
      `Cannot serve the dashboard: its port must be one that no other program has, received ${port}`,
    ),
  );
});
