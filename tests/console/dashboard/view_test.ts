/** What pages are told: in bounded memory, and enough for them to know all that is kept. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { emptyState, takeIn } from "../../../console/dashboard/page/state.js";
import { openThinnedList } from "../../../console/dashboard/view/bounded_lists.ts";
import { plannedSpans } from "../../../console/dashboard/view/planned.ts";
import { openRunView } from "../../../console/dashboard/view/run_view.ts";
import { createSchedule } from "../../../schedules/mod.ts";

const metricsOf = (step: number) =>
  ({ type: "step", step, time: 0, seconds: 0, loss: step, tokens: 0, rss: 0 }) as const;

const traceOf = (step: number) => ({ step, length: 1, workers: [], planned: [] });

Deno.test("a page that takes news in, whenever they come, knows what the server keeps", () => {
  const happening = fc.oneof(
    fc.record({ kind: fc.constant("steps"), count: fc.integer({ min: 1, max: 5000 }) }),
    fc.record({ kind: fc.constantFrom("trace", "failure", "tell"), count: fc.constant(1) }),
  );
  fc.assert(fc.property(fc.array(happening, { maxLength: 60 }), (happenings) => {
    const view = openRunView(), page = emptyState();
    takeIn(page, structuredClone(view.all()));
    let step = 0;
    for (const { kind, count } of happenings) {
      if (kind === "steps") { for (let i = 0; i < count; i++) view.addMetrics(metricsOf(++step)); }
      if (kind === "trace") {
        const now = ++step;
        view.addTrace(now, () => traceOf(now));
      }
      if (kind === "failure") view.addEvent({ kind, step, time: 0, text: "" });
      const news = kind === "tell" ? view.news() : undefined;
      if (news) takeIn(page, structuredClone(news));
    }
    takeIn(page, structuredClone(view.news() ?? {}));
    const all = view.all();
    assert.deepEqual(page.metrics, all.metrics!.entries);
    assert.deepEqual(page.events, all.events!.entries);
    assert.deepEqual(page.traces.map((trace) => trace.step), all.traces!.kept);
    assert.deepEqual(page.status, all.status);
  }));
});

Deno.test("a list of many entries stays short, even and up to date", () => {
  const list = openThinnedList<number>(100, (_, second) => second);
  for (let i = 1; i <= 1_000_000; i++) list.add(i);
  const { entries } = list;
  assert.ok(entries.length > 40 && entries.length <= 100, `${entries.length}`);
  assert.equal(entries.at(-1), 1_000_000);
  const steps = entries.slice(1, -1).map((entry, i) => entry - entries[i]!);
  assert.equal(new Set(steps).size, 1, "neighbours are equally far apart");
});

Deno.test("a step is planned at the mean cost of each action: halves, pairs and overlaps as their parts", () => {
  const action = (name: string, ms: number) => ({ name, start: 0, end: ms });
  const schedule = createSchedule("gpipe", { workers: 2, microBatches: 2 });
  const spans = plannedSpans(schedule, [
    [action("0F0+1", 4), action("0B0.0", 3), action("0B0.1", 1), action("0B1", 4)],
    [
      action("1F0", 1),
      action("1F1", 3),
      action("1B0", 6),
      action("1B1", 6),
      action("reduce 1", 99),
    ],
  ]);
  assert.deepEqual(spans, [
    [["0F0", 0, 2], ["0F1", 2, 4], ["0B0", 12, 16], ["0B1", 18, 22]],
    [["1F0", 2, 4], ["1F1", 4, 6], ["1B0", 6, 12], ["1B1", 12, 18]],
  ]);
});
