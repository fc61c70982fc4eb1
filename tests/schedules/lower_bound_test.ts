/** No order beats the lower bound of its placement, and some orders reach it. */

import assert from "node:assert/strict";
import fc from "../fast_check.ts";
import {
  type Action,
  analyze,
  B,
  createSchedule,
  F,
  formatCsv,
  I,
  makespanLowerBound,
  overlap,
  parseCsv,
  type Schedule,
  scheduleFromLists,
  W,
  withOrders,
} from "../../schedules/mod.ts";
import { hostTable } from "../../schedules/stages.ts";

const PLACED = [
  ["1f1b", { workers: 1, microBatches: 3 }],
  ["1f1b", { workers: 3, microBatches: 3 }],
  ["interleaved", { workers: 2, microBatches: 2 }],
  ["hanayo", { workers: 2, microBatches: 2 }],
  ["chimera", { workers: 2, microBatches: 4 }],
] as const;

/** How the backwards of one order are cut. */
type Cut = "whole" | "split" | "halves";

/**
 * An order that can run, drawn at random: whichever action is ready may come next, and one time in
 * three in an overlap with another that is ready.
 */
function anyOrder(base: Schedule, cuts: readonly Cut[], canOverlap: boolean, draw: () => number) {
  const { stages, microBatches, workers, replicaOf } = base, hosts = hostTable(base);
  const orders = Array.from({ length: workers }, (): Action[] => []);
  const done = new Set<string>();
  let left: [needs: string, gives: string, action: Action][] = [];
  for (let s = 0; s < stages; s++) {
    for (let m = 0; m < microBatches; m++) {
      left.push([s === 0 ? "" : `F${s - 1},${m}`, `F${s},${m}`, F(s, m)]);
      const needs = (half: string) => s === stages - 1 ? `F${s},${m}` : `B${s + 1},${m}${half}`;
      const cut = cuts[m % cuts.length]!, gives = `B${s},${m}`;
      if (cut === "whole") left.push([needs(""), gives, B(s, m)]);
      if (cut === "split") left.push([needs(""), gives, I(s, m)], [gives, "", W(s, m)]);
      if (cut === "halves") {
        for (const half of [0, 1] as const) {
          left.push([needs(`.${half}`), `${gives}.${half}`, B(s, m, half)]);
        }
      }
    }
  }
  while (left.length > 0) {
    const ready = left.filter(([needs]) => needs === "" || done.has(needs));
    const one = ready[draw() % ready.length]!;
    const host = ({ stage, microBatch }: Action) => hosts[replicaOf[microBatch]! * stages + stage]!;
    const isPair = ([, , action]: typeof one) =>
      host(action) === host(one[2]) && (action.kind === "F") !== (one[2].kind === "F");
    const others = canOverlap && draw() % 3 === 0 ? ready.filter(isPair) : [];
    const taken = [one, ...others.slice(0, 1)];
    for (const [, gives] of taken) done.add(gives);
    left = left.filter((other) => !taken.includes(other));
    const [first, second] = taken.map(([, , action]) => action);
    orders[host(first!)]!.push(second ? overlap(first!, second) : first!);
  }
  return withOrders(base, "any", orders);
}

Deno.test("no order beats the lower bound: whole, split and half backwards, overlaps, any costs", () => {
  const cost = fc.double({ min: 0.1, max: 3, noNaN: true });
  fc.assert(
    fc.property(
      fc.constantFrom(...PLACED),
      fc.array(fc.constantFrom<Cut>("whole", "split", "halves"), { minLength: 1, maxLength: 3 }),
      fc.tuple(cost, cost, cost, cost, fc.option(cost, { nil: undefined })),
      fc.array(fc.nat(), { minLength: 200, maxLength: 200 }),
      ([name, options], cuts, [forward, input, weight, send, overlapped], draws) => {
        const costs = { forward, input, weight, send, overlap: overlapped };
        let next = 0;
        const draw = () => draws[next++ % draws.length]!;
        const base = createSchedule(name, options);
        const schedule = anyOrder(base, cuts, overlapped !== undefined, draw);
        const { makespan, peakActivations } = analyze(schedule, costs);
        const bound = makespanLowerBound(schedule, costs, Math.max(...peakActivations));
        const what = `${JSON.stringify([name, options, costs])}\n${formatCsv(schedule.lists)}`;
        assert.ok(makespan >= bound - 1e-9, `${makespan} < ${bound}: ${what}`);
      },
    ),
    { numRuns: 2000 },
  );
});

Deno.test("the bound is what a step takes at least, to the number", () => {
  const bound = (name: string, workers: number, microBatches: number, costs = {}, limit?: number) =>
    makespanLowerBound(createSchedule(name, { workers, microBatches }), costs, limit);
  // One worker never waits; two forwards and backwards that may overlap are two overlaps.
  assert.equal(bound("1f1b", 1, 8), 24);
  assert.equal(bound("1f1b", 1, 8, { forward: 1, backward: 2, overlap: 1.5 }), 12);
  // One micro-batch goes up and down: 4 forwards, 3 backwards for the input, a whole one, 6 ways.
  assert.equal(bound("1f1b", 4, 1, { forward: 1, input: 2, weight: 3, send: 0.5 }), 18);
  // Zero bubble (ZB-H2) reaches it: the way to the last worker, and its work.
  assert.equal(bound("zb-h2", 4, 8), 27);
  assert.equal(analyze(createSchedule("zb-h2", { workers: 4, microBatches: 8 })).makespan, 27);
  // One activation at a time: a micro-batch lives on worker 0 for 3 · 2 + 1, eight of them.
  assert.equal(bound("1f1b", 3, 8, {}, 1), 56);
});

Deno.test("a gradient that travels in halves arrives sooner, and the bound knows", () => {
  const lists = parseCsv("0F0,0B0.0,0B0.1\n1F0,1B0.0,1B0.1\n2F0,2B0.0,2B0.1\n");
  const halving = scheduleFromLists("halving", lists), costs = { forward: 1, input: 3, weight: 1 };
  // Three forwards, then a half of 2 on stages 2 and 1 (an I takes 3), and both halves on stage 0.
  assert.equal(makespanLowerBound(halving, costs), 11);
  assert.equal(analyze(halving, costs).makespan, 11);
});
