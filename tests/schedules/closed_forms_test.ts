import assert from "node:assert/strict";
import {
  type Analysis,
  analyze,
  type ClosedForm,
  createSchedule,
  scheduleDefinitions,
  type UniformCosts,
  validate,
} from "../../schedules/mod.ts";
import { allCases, type Case, inWords, isNear, made } from "./cases.ts";

/** tF, tI, tW: equal, tB = 2tF with uneven halves, tB = tF, and where tI or tW dominates. */
const DURATIONS = [
  [1, 1, 1],
  [1, 1.2, 0.8],
  [1, 0.8, 1.2],
  [1, 0.5, 0.5],
  [1, 1.5, 1.5],
  [2, 3, 1],
] as const;

function uniform([forward, input, weight]: readonly [number, number, number]): UniformCosts {
  const backward = input + weight;
  return { forward, backward, input, weight, overlap: forward + backward };
}

function check(one: Case, analysis: Analysis, form: ClosedForm): void {
  const where = inWords(one);
  const same = (what: "idle" | "idleLocal", expected: number | undefined) => {
    if (expected === undefined) return;
    for (const time of analysis[what]) {
      assert.ok(isNear(time, expected), `${where}: ${what} ${time}, by the form ${expected}`);
    }
  };
  const list = (what: "peakActivations" | "weights", expected: readonly number[] | undefined) => {
    if (expected === undefined) return;
    const isSame = analysis[what].every((value, worker) => isNear(value, expected[worker]!));
    assert.ok(isSame, `${where}: ${what} ${analysis[what]}, by the form ${expected}`);
  };
  same("idle", form.idle);
  same("idleLocal", form.idleLocal);
  list("peakActivations", form.peakActivations);
  list("weights", form.weights);
  const { idleAtLeast = -Infinity, idleAtMost = Infinity, peakAtMost = Infinity } = form;
  for (const time of analysis.idle) {
    assert.ok(time >= idleAtLeast - 1e-9, `${where}: idle ${time}, at least ${idleAtLeast}`);
    assert.ok(time <= idleAtMost + 1e-9, `${where}: idle ${time}, at most ${idleAtMost}`);
  }
  for (const [worker, peak] of analysis.peakActivations.entries()) {
    assert.ok(peak <= peakAtMost + 1e-9, `${where}: peak ${peak}, at most ${peakAtMost}`);
    const { least, most } = analysis.schedule.peaks?.[worker] ?? { least: 0, most: Infinity };
    assert.ok(peak >= least && peak <= most, `${where}: peak ${peak}, from ${least} to ${most}`);
  }
}

const CASES = allCases();

for (const definition of scheduleDefinitions) {
  if (definition.name === "search") continue;
  Deno.test(`${definition.name} is valid and as its closed form says, whatever the options`, () => {
    let [served, exact] = [0, 0];
    for (const one of CASES.filter(({ name }) => name === definition.name)) {
      const schedule = made(one);
      if (schedule === undefined) continue;
      served++;
      for (const durations of DURATIONS) {
        const costs = uniform(durations);
        const analysis = analyze(schedule, costs);
        if (durations === DURATIONS[0] || schedule.lists === undefined) {
          const wrong: string[] = validate(analysis.schedule).map(({ message }) => message);
          assert.deepEqual(wrong, [], inWords(one));
        }
        const form = definition.closedForm?.(one.options, costs);
        if (form === undefined) continue;
        check(one, analysis, form);
        if (form.idle !== undefined || form.idleAtLeast !== undefined) exact++;
      }
    }
    assert.ok(served >= 40, `only ${served} cases were served`);
    assert.ok(exact > 0 || definition.closedForm === undefined, "no idle time was compared");
  });
}

Deno.test("no worker of message-driven holds more or less at its peak than its bounds, and each is reached", () => {
  for (const order of ["fifo", "backward-first"] as const) {
    for (
      const [workers, pipelineLimit, microBatches] of [[1, 3, 5], [2, 3, 5], [4, 4, 8], [
        4,
        6,
        5,
      ]] as const
    ) {
      const options = { workers, microBatches, pipelineLimit, order };
      const schedule = createSchedule("message-driven", options), { peaks } = schedule;
      const slow = (worker: number) =>
        Array.from({ length: workers }, (_, s) => s === worker ? 100 : 1);
      const found = [
        analyze(schedule, { forward: slow(0), backward: slow(0) }),
        analyze(schedule, { forward: slow(workers - 1), backward: slow(workers - 1) }),
      ].map(({ peakActivations }) => peakActivations);
      for (const [worker, { least, most }] of peaks!.entries()) {
        const held = found.map((peaks) => peaks[worker]!);
        assert.deepEqual(
          [Math.min(...held), Math.max(...held)],
          [least, most],
          `${JSON.stringify(options)}: worker ${worker}`,
        );
      }
    }
  }
});
