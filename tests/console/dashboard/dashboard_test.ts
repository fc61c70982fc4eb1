/** The server of the dashboard, its updates, and runs read from folders. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { delay } from "@std/async/delay";
import { followRun } from "../../../console/dashboard/follow.ts";
import { emptyState, update } from "../../../console/dashboard/page/state.js";
import { listenToPointers, openRange } from "../../../console/dashboard/page/pointer.js";
import { serveDashboard, Streams } from "../../../console/dashboard/serve.ts";
import { expectedSpans, RunView, type Updates } from "../../../console/dashboard/view.ts";
import { RecentList, ThinnedList } from "../../../console/run_files/bounded_lists.ts";
import { createSchedule } from "../../../schedules/mod.ts";
import { atDepth } from "../../depth.ts";
import fc from "../../fast_check.ts";
import { inFolder } from "../../in_folder.ts";
import { readJson, refusalHere, refusedHere, TINY, trainHere } from "../command.ts";
import { assertSentences } from "../refusals.ts";

/** Sends a request with headers that `fetch` does not allow; returns the whole response. */
async function request(port: number, lines: readonly string[]): Promise<string> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  const text = [...lines, "connection: close", "", ""].join("\r\n");
  await connection.write(new TextEncoder().encode(text));
  return await new Response(connection.readable).text();
}

/** Reads the updates of a stream of events, one at a time. */
async function* newsOf(url: string): AsyncGenerator<Updates> {
  const { body } = await fetch(`${url}events`);
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

Deno.test("the page is served only under its path and address, for reading", async () => {
  await using dashboard = serveDashboard(new RunView(), 0);
  const { port, host, pathname } = new URL(dashboard.url), own = Number(port);
  const page = await request(own, [`GET ${pathname} HTTP/1.1`, `host: ${host}`]);
  assert.match(page, /^HTTP\/1\.1 200/);
  assert.match(page, /content-security-policy: default-src 'none'; script-src 'self';/);
  assert.match(page, /<title>Troupe<\/title>/);
  assert.match(pathname, /^\/[0-9a-f]{32}\/$/);
  const refused: [expected: number, first: string, host: string][] = [
    [421, `GET ${pathname} HTTP/1.1`, "troupe.example"],
    [421, `GET ${pathname} HTTP/1.1`, `troupe.example:${own}`],
    [421, `GET ${pathname} HTTP/1.1`, `127.0.0.1:${own + 1}`],
    [404, `GET /${"0".repeat(32)}/ HTTP/1.1`, host],
    [404, `GET ${pathname}../../deno.json HTTP/1.1`, host],
    [404, `GET ${pathname}%2e%2e%2fdeno.json HTTP/1.1`, host],
    [404, `GET http://[${pathname} HTTP/1.1`, host],
    [405, `POST ${pathname} HTTP/1.1`, host],
  ];
  for (const [expected, first, host] of refused) {
    const answer = await request(own, [first, `host: ${host}`, "content-length: 0"]);
    assert.ok(answer.startsWith(`HTTP/1.1 ${expected}`), `${first}, ${host}: ${answer}`);
    assert.doesNotMatch(answer, /<title>|troupe\/troupe/);
  }
  assert.throws(
    () => serveDashboard(new RunView(), own),
    new RangeError(`Cannot serve the page: its port must be free, received ${port}`),
  );
});

const metricsOf = (step: number) =>
  ({ type: "step", step, time: 1, seconds: 1, loss: step, tokens: 1, rss: 1 }) as const;

Deno.test("a page gets the state when it opens, then updates, also the last ones", async () => {
  const view = new RunView();
  view.addMetrics(metricsOf(1));
  const dashboard = serveDashboard(view, 0);
  const news = newsOf(dashboard.url), first = (await news.next()).value!;
  assert.deepEqual(first.metrics!.entries.map(({ loss }: { loss?: number }) => loss), [1]);
  view.addMetrics(metricsOf(2));
  for (;;) {
    const { metrics } = (await news.next()).value!;
    if (metrics!.entries.at(-1)!.step !== 2) continue;
    assert.ok(metrics!.from <= 1);
    break;
  }
  view.setStatus({ status: "finished" });
  await dashboard[Symbol.asyncDispose]();
  const last = (await news.next()).value!;
  assert.equal(last.status!.status, "finished");
  assert.equal((await news.next()).done, true);
});

Deno.test("at most 16 pages are open, and a slow one is disconnected", async () => {
  using streams = new Streams();
  const open = Array.from({ length: 16 }, (_, i) => streams.open({ i })!);
  assert.deepEqual([streams.size, streams.open({})], [16, undefined]);
  await open[0]!.cancel();
  const late = streams.open({})!, reader = open[1]!.getReader();
  streams.send("x".repeat(2 ** 20));
  assert.equal(streams.size, 16);
  streams.send("x".repeat(2 ** 24));
  assert.equal(streams.size, 0);
  const { value } = await reader.read();
  assert.equal(new TextDecoder().decode(value), "retry: 1000\n");
  await Promise.all([late, ...open.slice(2)].map((one) => one.cancel()));
  await reader.cancel();
});

const traceOf = (step: number) => ({ step, length: 1, workers: [], expected: [] });

Deno.test("a page has the state of the server, whenever its updates arrive", () => {
  const happening = fc.oneof(
    fc.record({ kind: fc.constant("steps"), count: fc.integer({ min: 1, max: 5000 }) }),
    fc.record({ kind: fc.constantFrom("trace", "failure", "tell"), count: fc.constant(1) }),
  );
  const happenings = fc.array(happening, { maxLength: 60 });
  const property = fc.property(happenings, (happenings) => {
    const view = new RunView(), page = emptyState();
    update(page, structuredClone(view.all()));
    let step = 0;
    for (const { kind, count } of happenings) {
      if (kind === "steps") { for (let i = 0; i < count; i++) view.addMetrics(metricsOf(++step)); }
      if (kind === "trace") {
        const now = ++step;
        view.addTrace(now, () => traceOf(now));
      }
      if (kind === "failure") view.addEvent({ kind, step, time: 0, text: "" });
      const news = kind === "tell" ? view.updates() : undefined;
      if (news) update(page, structuredClone(news));
    }
    update(page, structuredClone(view.updates() ?? {}));
    const all = view.all();
    assert.deepEqual(page.metrics, all.metrics!.entries);
    assert.deepEqual(page.events, all.events!.entries);
    assert.deepEqual(page.traces.map((trace) => trace.step), all.traces!.kept);
    assert.deepEqual(page.status, all.status);
  });
  fc.assert(property, { numRuns: atDepth(50, 1000) });
});

Deno.test("a thinned list stays short, even and up to date", () => {
  const list = new ThinnedList<number>(100, (_, second) => second);
  for (let i = 1; i <= 100_000; i++) list.add(i);
  const { entries } = list;
  assert.ok(entries.length > 40 && entries.length <= 100, `${entries.length}`);
  assert.equal(entries.at(-1), 100_000);
  const steps = entries.slice(1, -1).map((entry, i) => entry - entries[i]!);
  assert.equal(new Set(steps).size, 1, "neighbours are equally far apart");
  const recent = new RecentList<number>(5);
  for (let i = 1; i <= 6; i++) assert.equal(recent.add(i), i < 6 ? i - 1 : 0);
  assert.deepEqual(recent.entries, [4, 5, 6]);
});

Deno.test("a step of jobs is one row, and no job is thinned out", () => {
  const view = new RunView();
  for (let step = 1; step <= 9000; step++) {
    for (const job of ["low", "high"]) {
      view.addMetrics({ ...metricsOf(step), job, tokensPerSecond: 5, loss: job === "low" ? 1 : 3 });
    }
  }
  const { entries } = view.all().metrics!, { jobs, loss, tokensPerSecond } = entries.at(-1)!;
  assert.ok(entries.length > 1000 && entries.length <= 4000, `${entries.length}`);
  assert.ok(entries.every(({ jobs }) => jobs!.low!.loss === 1 && jobs!.high!.loss === 3));
  assert.deepEqual([Object.keys(jobs!), loss, tokensPerSecond], [["low", "high"], 2, 10]);
});

Deno.test("a view has the restarts and memory of each worker, and some traces", () => {
  const view = new RunView(), workers = [0, 1].map((stage) => ({ replica: 0, stages: [stage] }));
  view.begin({ workers } as never, { status: "running", step: 0, steps: 50 });
  view.addMetrics({ ...metricsOf(1), memory: [5, 6] });
  view.addEvent({ kind: "failure", step: 1, time: 0, worker: 1, text: "" });
  view.addEvent({ kind: "checkpoint", step: 1, time: 0, worker: 0, text: "" });
  const held = [{ restarts: 0, memoryBytes: 5 }, { restarts: 1, memoryBytes: 6 }];
  assert.deepEqual(view.all().workers, held);
  assert.deepEqual(Object.keys(view.updates()!), ["run", "status", "workers", "metrics", "events"]);
  assert.equal(view.updates(), undefined);
  let made = 0;
  for (let step = 1; step <= 50; step++) view.addTrace(step, () => (made++, traceOf(step)));
  const { kept, added } = view.all().traces!;
  assert.deepEqual(kept.slice(-8), [43, 44, 45, 46, 47, 48, 49, 50]);
  assert.ok(kept[0] === 1 && kept.length > 16 && kept.length <= 24, `${kept}`);
  assert.deepEqual(added.map(({ step }) => step), kept);
  view.all();
  assert.equal(made, kept.length, "each is made once, in the shown list");
});

Deno.test("the expected timeline has the mean cost of each action, also of halves, pairs and overlaps", () => {
  const action = (name: string, ms: number) => ({ name, start: 0, end: ms });
  const schedule = createSchedule("gpipe", { workers: 2, microBatches: 2 });
  const spans = expectedSpans(schedule, [
    [action("0F0+1", 4), action("0B0.0", 3), action("0B0.1", 1), action("0B1", 4)],
    [
      ...[action("1F0", 1), action("1F1", 3), action("1B0", 6), action("1B1", 6)],
      action("reduce 1", 99),
    ],
  ]);
  assert.deepEqual(spans, [
    [["0F0", 0, 2], ["0F1", 2, 4], ["0B0", 12, 16], ["0B1", 18, 22]],
    [["1F0", 2, 4], ["1F1", 4, 6], ["1B0", 6, 12], ["1B1", 12, 18]],
  ]);
});

const STEPS = 4;

/** Waits for new metrics of a run that is followed. */
async function nextMetrics(followed: Awaited<ReturnType<typeof followRun>>) {
  for (;;) {
    const { metrics } = followed.updates() ?? {};
    if (metrics) return metrics;
    await delay(50);
  }
}

/** Changes the record of a run. */
async function changeRecord(run: string, change: (record: Values) => unknown): Promise<void> {
  const path = join(run, "run.json"), record = JSON.parse(await Deno.readTextFile(path));
  change(record);
  await Deno.writeTextFile(path, JSON.stringify(record));
}

// deno-lint-ignore no-explicit-any -- A record as a test changes it.
type Values = any;

const FOLLOWED: Readonly<Record<string, (run: string) => Promise<void>>> = {
  "is shown again": async (run) => {
    const followed = await followRun(run);
    const { run: facts, status, metrics, evaluations, traces, events } = followed.all();
    assert.equal(facts!.title, run);
    assert.equal(facts!.lossUnit, "nats a prediction");
    assert.deepEqual(facts!.workers, [{ replica: 0, stages: [0] }, { replica: 0, stages: [1] }]);
    assert.deepEqual(status, { status: "finished", step: STEPS, steps: STEPS });
    assert.deepEqual(metrics!.entries.map(({ step }) => step), [1, 2, 3, 4]);
    assert.deepEqual(evaluations!.entries.map(({ step }) => step), [2, 4]);
    assert.deepEqual(traces!.kept, [1, 2, 3, 4]);
    const [first] = traces!.added;
    assert.deepEqual(first!.expected[0]!.map(([name]) => name), ["0F0", "0F1", "0B0", "0B1"]);
    const { spans, busy, forwards } = first!.workers[1]!;
    assert.deepEqual(spans.slice(0, 4).map(([name]) => name), ["1F0", "1B0", "1F1", "1B1"]);
    assert.ok(busy > 0 && busy <= first!.length, `busy for ${busy} of ${first!.length} ms`);
    assert.equal(forwards, 2);
    assert.deepEqual(events!.entries.map(({ kind, step }) => `${kind} ${step}`), ["checkpoint 4"]);
  },
  "is followed as it grows, and again after the run restarts": async (run) => {
    const followed = await followRun(run), path = join(run, "metrics.jsonl");
    const line = (step: number) => `${JSON.stringify(metricsOf(step))}\n`;
    followed.updates();
    await Deno.writeTextFile(path, `${line(5)}{"type":`, { append: true });
    const grown = await nextMetrics(followed);
    assert.deepEqual(grown.entries.map(({ step }) => step), [5]);
    await Deno.writeTextFile(path, line(1));
    await changeRecord(run, (record) => {
      record.starts.push({ ...record.starts[0], afterStep: 0 });
      delete record.end;
    });
    const { from, entries } = await nextMetrics(followed);
    assert.deepEqual([from, entries.map(({ step }) => step)], [0, [1]]);
    assert.equal(followed.all().status!.status, "gone", "it has no end, and is not training");
  },
  "is followed after its metrics or its folder were removed and made again": async (run) => {
    const followed = await followRun(run), path = join(run, "metrics.jsonl"), away = `${run}-away`;
    const line = (step: number) => `${JSON.stringify(metricsOf(step))}\n`;
    await Deno.rename(run, away);
    while (followed.all().status!.note === undefined) await delay(50);
    followed.updates();
    await Deno.rename(away, run);
    const { entries } = await nextMetrics(followed);
    assert.deepEqual(entries.map(({ step }) => step), [1, 2, 3, 4]);
    assert.equal(followed.all().status!.note, undefined);
    followed.updates();
    await Deno.writeTextFile(path, line(5));
    const { from, entries: [first, ...others] } = await nextMetrics(followed);
    assert.deepEqual([from, first!.step, others], [0, 5, []]);
  },
  "may lack its timeline, or have text that looks like markup": async (run) => {
    const text = "<script>alert(1)</script>";
    await changeRecord(run, (record) => {
      record.model = text;
      record.flags = { ...record.flags, schedule: text, [text]: text, workers: 1e9 };
    });
    await Deno.remove(join(run, "timeline.jsonl"));
    const { run: facts, traces } = (await followRun(run)).all();
    assert.deepEqual(traces, { kept: [], added: [] });
    assert.equal(facts!.lossUnit, undefined);
    assert.equal(facts!.workers.length, 2, "as in the plan, since the flags make no schedule");
    const shown = facts!.tables.flatMap(({ rows }) => rows);
    assert.ok(shown.some(([name, value]) => name === text && value === text));
  },
  "has a colour for each kind of action of its schedule": async (run) => {
    for (const [name, kinds] of [["1f1b", "BF"], ["message-driven", "FIW"], ["search", "BFIRW"]]) {
      await changeRecord(run, (record) => {
        record.flags.schedule = name;
        record.schedule = { ...name === "1f1b" && record.schedule, name };
      });
      const { inks } = (await followRun(run)).all().run!;
      const found = new Set(Object.keys(inks).map(([kind]) => kind));
      assert.equal([...found].sort().join(""), kinds, name);
    }
  },
  "is refused in one sentence if its values are not those of a run": async (run) => {
    const found: [string, string][] = [], step = '{"type":"step","step":';
    const refuse = async (name: string, text: string, about?: string) => {
      const path = join(run, name), before = await Deno.readTextFile(path);
      await Deno.writeTextFile(path, text);
      const what = about ?? `${name} ${JSON.stringify(text.slice(0, 40))}`;
      found.push([what, await refusalHere(["dashboard", run])]);
      await Deno.writeTextFile(path, before);
    };
    await refuse("run.json", "{}", "{}");
    const { plan, ...record } = await readJson(run, "run.json");
    const plans = [{ stages: [] }, { stages: [{ stage: 0, workers: [1e12] }] }, { replicas: 1e9 }];
    for (const change of plans) {
      const text = JSON.stringify({ ...record, plan: { ...plan, ...change } });
      await refuse("run.json", text, JSON.stringify(change));
    }
    await refuse("metrics.jsonl", `${step}NaN}\n`);
    await refuse("metrics.jsonl", `${step}-1}\n`);
    await refuse("metrics.jsonl", "9".repeat(2 ** 24) + "\n");
    await refuse("timeline.jsonl", `${step}1,"time":0,"traces":[[{"name":1}]]}\n`);
    await assertSentences("followed_runs", found, { FOLDER: run });
    await refusedHere(["dashboard", join(run, "none")], /^Cannot read the run/);
    await refusedHere(["dashboard", run, run], /there must be one folder or name, received/);
  },
};

Deno.test("the folder of a watched run", (t) =>
  inFolder(async (folder) => {
    const made = join(folder, "made");
    const train = [...TINY, "--workers", "2", "--schedule", "1f1b", "--eval-every", "2"];
    await trainHere([...train, "--steps", `${STEPS}`, "--dashboard", "--out", made]);
    for (const [i, [name, test]] of Object.entries(FOLLOWED).entries()) {
      const run = join(folder, `run-${i}`);
      await Deno.mkdir(run);
      for (const file of ["run.json", "metrics.jsonl", "timeline.jsonl"]) {
        await Deno.copyFile(join(made, file), join(run, file));
      }
      await t.step(name, () => test(run));
    }
  }));

// The unread response ends a moment later.
const LATE = { sanitizeOps: false };

Deno.test("a page that stopped reading does not delay the end", LATE, async () => {
  const view = new RunView(), dashboard = serveDashboard(view, 0);
  const { port, host, pathname } = new URL(dashboard.url);
  const where = { hostname: "127.0.0.1", port: Number(port) };
  const connection = await Deno.connect(where);
  const ask = `GET ${pathname}events HTTP/1.1\r\nhost: ${host}\r\n\r\n`;
  await connection.write(new TextEncoder().encode(ask));
  await connection.read(new Uint8Array(16));
  view.setStatus({ note: "x".repeat(2 ** 24) });
  await dashboard[Symbol.asyncDispose]();
  connection.close();
  await assert.rejects(Deno.connect(where), Deno.errors.ConnectionRefused);
});

Deno.test("a zoomed timeline stays within a step that is shorter", () => {
  const range = openRange(() => {});
  range.endAt(100);
  range.zoom(0.05, 100);
  assert.deepEqual(range.seen(), { from: 95, to: 100 });
  range.endAt(10);
  assert.deepEqual(range.seen(), { from: 5, to: 10 });
  range.endAt(4);
  assert.deepEqual(range.seen(), { from: 0, to: 4 });
});

Deno.test("a drag ends when the button is released elsewhere", () => {
  const getBoundingClientRect = () => ({ left: 0 }), pans: number[] = [];
  const more = { clientWidth: 100, hasPointerCapture: () => true, getBoundingClientRect };
  const place = Object.assign(new EventTarget(), more) as unknown;
  const nothing = () => {};
  listenToPointers(place as Parameters<typeof listenToPointers>[0], {
    ...{ point: nothing, zoom: nothing, hide: nothing, timeAt: (x) => x },
    pan: (part) => pans.push(part),
  });
  const send = (type: string, clientX: number, buttons: number) =>
    (place as EventTarget).dispatchEvent(
      Object.assign(new Event(type), { pointerId: 1, clientX, buttons }),
    );
  send("pointerdown", 50, 1);
  send("pointermove", 40, 1);
  send("pointermove", 20, 0);
  send("pointermove", 10, 0);
  assert.deepEqual(pans, [0.1]);
});
