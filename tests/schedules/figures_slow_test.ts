import { IS_DEEP } from "../depth.ts";
import assert from "node:assert/strict";
import {
  type Analysis,
  analyze,
  createSchedule,
  scheduleDefinitions,
  type ScheduleOptions,
  validate,
} from "../../schedules/mod.ts";
import PUBLISHED from "./published.json" with { type: "json" };
import { CLOSED_FORMS, type ClosedForm, type UniformCosts } from "./closed_forms.ts";
import { allCases, FOUR, inWords, isNear, made } from "./cases.ts";

function measure(name: string, options: ScheduleOptions, backward = 2) {
  const schedule = createSchedule(name, options);
  const { makespan, idle, peakActivations: peaks } = analyze(schedule, { backward });
  return { makespan, idle: idle[0], least: Math.min(...peaks), most: Math.max(...peaks) };
}

/** Idle time of the first worker, and the least and most activations of a worker. */
const FIGURES = PUBLISHED.figures as [string, ScheduleOptions, number, number | null, number][];

Deno.test("schedules have the idle time and the activations of their papers", () => {
  for (const [name, options, idle, least, most] of FIGURES) {
    const seen = measure(name, options), figures = [seen.idle, seen.least, seen.most];
    assert.deepEqual(figures, [idle, least ?? seen.least, most], inWords({ name, options }));
  }
  for (const depth of [4, 8, 12]) {
    // Times are for 1/P of the model: a worker of the wave holds twice the share of a Chimera worker.
    const wave = measure("chimera-wave", { workers: depth / 2, microBatches: depth / 2 });
    assert.equal(2 * wave.idle!, measure("chimera", { workers: depth, microBatches: depth }).idle);
    assert.deepEqual([wave.least, wave.most], [(depth / 2 + 1) / 2, depth / 2]);
  }
});

/** Step times with eight workers. */
const TIMES = PUBLISHED.times as [string, number, number, Partial<ScheduleOptions>?, number?][];

Deno.test("steps on eight workers take the published times", () => {
  for (const [name, microBatches, time, more, backward] of TIMES) {
    const { makespan } = measure(name, { workers: 8, microBatches, ...more }, backward);
    assert.equal(makespan, time, `${name}, ${microBatches} micro-batches, ${JSON.stringify(more)}`);
  }
  const fifo = { workers: 4, microBatches: 32, order: "fifo" } as const;
  const four = analyze(createSchedule("message-driven", fifo));
  assert.deepEqual([four.makespan, four.peakActivations], [105, [4, 4, 4, 1]]);
  const { idleLocal, makespan } = analyze(createSchedule("zb-h2", FOUR));
  assert.deepEqual([idleLocal, makespan], [[0, 0, 0, 0], 3 * 8 + 3]);
});

Deno.test("DualPipe has the published bubbles, also if the overlap gains time", () => {
  const schedule = createSchedule("dualpipe", { workers: 8, microBatches: 20 });
  assert.equal(Math.max(...analyze(schedule).idle), 6);
  assert.equal(Math.max(...analyze(schedule, { overlap: 2.5 }).idle), 4.5);
  const { dualpipe: form } = CLOSED_FORMS;
  for (const overlap of [1, 1.9, 2, 2.5, 4]) {
    const costs = { ...uniform([1, 1, 1]), overlap };
    check(`overlap ${overlap}`, analyze(schedule, costs), form!(schedule, costs));
  }
  const uneven = analyze(schedule, { input: 1.2, weight: 0.8 });
  assert.ok(Math.abs(uneven.idle[0]! - 7.2) < 1e-9);
});

/** tF, tI, tW: equal, tB = 2tF with uneven halves, tB = tF, and dominated by tI or tW. */
const DURATIONS: readonly (readonly [number, number, number])[] = [
  ...[[1, 1, 1], [1, 1.2, 0.8], [1, 0.8, 1.2], [1, 0.5, 0.5], [1, 1.5, 1.5], [2, 3, 1]] as const,
];

function uniform([forward, input, weight]: readonly [number, number, number]): UniformCosts {
  const backward = input + weight;
  return { forward, backward, input, weight, overlap: forward + backward };
}

function check(where: string, analysis: Analysis, form: ClosedForm): void {
  const { idle, idleLocal, peak, weights = () => 1 } = form;
  for (let worker = 0; worker < analysis.schedule.workers; worker++) {
    const own = { idle, idleLocal, peakActivations: peak?.(worker), weights: weights(worker) };
    for (const what of ["idle", "idleLocal", "peakActivations", "weights"] as const) {
      const value = analysis[what][worker]!, expected = own[what];
      const isAs = expected === undefined || isNear(value, expected);
      assert.ok(isAs, `${where}: ${what} ${value} of worker ${worker}, by the form ${expected}`);
    }
  }
  const { idleAtLeast = -Infinity, idleAtMost = Infinity, peakAtMost = Infinity } = form;
  for (const time of analysis.idle) {
    const isWithin = time >= idleAtLeast - 1e-9 && time <= idleAtMost + 1e-9;
    assert.ok(isWithin, `${where}: idle ${time}, from ${idleAtLeast} to ${idleAtMost}`);
  }
  for (const [worker, peak] of analysis.peakActivations.entries()) {
    assert.ok(peak <= peakAtMost + 1e-9, `${where}: peak ${peak}, at most ${peakAtMost}`);
    const { least, most } = analysis.schedule.peaks?.[worker] ?? { least: 0, most: Infinity };
    assert.ok(peak >= least && peak <= most, `${where}: peak ${peak}, from ${least} to ${most}`);
  }
}

/** All sizes; every seventh outside of `test:deep`, those of up to four workers always. */
const CASES = allCases().filter(({ options: { workers } }, i) =>
  IS_DEEP || workers <= 4 || i % 7 === 0
);

for (const definition of scheduleDefinitions) {
  if (definition.name === "search") continue;
  Deno.test(`${definition.name} is valid and as its closed form says, whatever the options`, () => {
    let [served, exact] = [0, 0];
    for (const one of CASES.filter(({ name }) => name === definition.name)) {
      const schedule = made(one);
      if (schedule === undefined) continue;
      served++;
      // Outside of `test:deep` each case runs with one of the durations, in turn.
      for (const durations of IS_DEEP ? DURATIONS : [DURATIONS[served % DURATIONS.length]!]) {
        const costs = uniform(durations), analysis = analyze(schedule, costs);
        assert.deepEqual(validate(analysis.schedule), [], inWords(one));
        const form = CLOSED_FORMS[definition.name]?.(one.options, costs);
        if (form === undefined) continue;
        check(inWords(one), analysis, form);
        if (form.idle !== undefined || form.idleAtLeast !== undefined) exact++;
      }
    }
    assert.ok(served >= 10, `only ${served} cases were served`);
    assert.ok(
      exact > 0 || !Object.hasOwn(CLOSED_FORMS, definition.name),
      "no idle time was compared",
    );
  });
}

Deno.test("the peak of every message-driven worker is within its bounds, and reaches each of them", () => {
  const sizes = [[1, 3, 5], [2, 3, 5], [4, 4, 8], [4, 6, 5]] as const;
  for (const order of ["fifo", "backward-first"] as const) {
    for (const [workers, pipelineLimit, microBatches] of sizes) {
      const options = { workers, microBatches, pipelineLimit, order };
      const schedule = createSchedule("message-driven", options);
      const found = [0, workers - 1].map((slow) => {
        const forward = Array.from({ length: workers }, (_, s) => s === slow ? 100 : 1);
        return analyze(schedule, { forward, backward: forward }).peakActivations;
      });
      for (const [worker, { least, most }] of schedule.peaks!.entries()) {
        const held = found.map((peaks) => peaks[worker]!);
        const where = `${JSON.stringify(options)}: worker ${worker}`;
        assert.deepEqual([Math.min(...held), Math.max(...held)], [least, most], where);
      }
    }
  }
});
