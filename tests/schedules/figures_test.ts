import assert from "node:assert/strict";
import {
  analyze,
  createSchedule,
  formatCsv,
  parseCsv,
  type ScheduleOptions,
  withLists,
} from "../../schedules/mod.ts";

function measure(name: string, options: ScheduleOptions, backward = 2) {
  const { makespan, idle, peakActivations } = analyze(createSchedule(name, options), { backward });
  return {
    makespan,
    idle: idle[0],
    least: Math.min(...peakActivations),
    most: Math.max(...peakActivations),
  };
}

/** Chimera with D = N = 8 for each number of pipes: idle time D/f - 2 backwards, D - D/2f + 1 … D. */
const CHIMERA_EIGHT = [
  { pipelines: 1, idle: 12, least: 5 },
  { pipelines: 2, idle: 4, least: 7 },
  { pipelines: 4, idle: 0, least: 8 },
] as const;

Deno.test("Chimera with eight workers has the time, idle time and memory of its table", () => {
  for (const { pipelines, idle, least } of CHIMERA_EIGHT) {
    const seen = measure("chimera", { workers: 8, microBatches: 8, pipelines });
    assert.deepEqual(seen, { makespan: 24 + idle, idle, least, most: 8 });
  }
});

Deno.test("Chimera's direct units leave (K+1)(D/f-2) gaps at tB = 2tF", () => {
  for (const pipelines of [1, 2, 4]) {
    for (const units of [1, 2, 3, 4, 8]) {
      const { idle } = measure("chimera", { workers: 8, microBatches: 8 * units, pipelines });
      assert.equal(idle, (units + 1) * (8 / pipelines - 2));
    }
  }
});

Deno.test("Chimera's ways to scale trade idle time for activations", () => {
  const sixteen = { workers: 8, microBatches: 16 };
  const doubling = measure("chimera", { ...sixteen, scale: "doubling" });
  assert.deepEqual([doubling.idle, doubling.least, doubling.most], [9, 13, 16]);
  const halving = measure("chimera", { ...sixteen, scale: "halving" });
  assert.deepEqual([halving.idle, halving.least, halving.most], [6, 6.5, 8]);
  const odd = measure("chimera", { workers: 8, microBatches: 24, scale: "doubling" });
  assert.equal(odd.idle, 9 + 6);
});

Deno.test("with recomputation Chimera's doubling beats 1F1B up to about N = 8D", () => {
  const time = (name: string, microBatches: number) => {
    const scale = name === "chimera" ? { scale: "doubling" } as const : {};
    return measure(name, { workers: 8, microBatches, ...scale }, 3).makespan;
  };
  assert.deepEqual([time("chimera", 32), time("1f1b", 32)], [146, 156]);
  assert.deepEqual([time("chimera", 64), time("1f1b", 64)], [286, 284]);
});

Deno.test("doubled forwards cost nothing beside pairs of single ones", () => {
  for (const [workers, pipelines] of [[4, 1], [6, 1], [8, 1], [8, 2], [12, 2], [16, 4]] as const) {
    for (const units of [2, 3, 4]) {
      for (const backward of [2, 2.5, 3, 6]) {
        const options = { workers, microBatches: units * workers, pipelines };
        const doubled = withLists(createSchedule("chimera", { ...options, scale: "doubling" }));
        const csv = formatCsv(doubled.lists);
        assert.match(csv, /\d+F\d+\+\d+/);
        const singles = csv.replace(/(\d+)F(\d+)\+(\d+)/g, "$1F$2,$1F$3");
        const pairs = { ...doubled, lists: parseCsv(singles) };
        assert.equal(
          analyze(doubled, { backward }).makespan,
          analyze(pairs, { backward }).makespan,
          `${workers} workers, ${pipelines} pipelines, ${units} units, tB = ${backward}`,
        );
      }
    }
  }
});

Deno.test("Chimera with fewer micro-batches than workers still beats 1F1B, and equals it with one", () => {
  const time = (name: string, microBatches: number) =>
    measure(name, { workers: 8, microBatches }).makespan;
  assert.deepEqual([time("chimera", 2), time("1f1b", 2)], [24, 27]);
  assert.equal(time("chimera", 1), time("1f1b", 1));
});

Deno.test("Hanayo has the time, idle time and memory of its closed form", () => {
  for (const workers of [2, 4, 8]) {
    for (const waves of [1, 2, 4]) {
      const seen = measure("hanayo", { workers, microBatches: workers, waves });
      const idle = 2 * (workers - 1) / waves;
      const least = workers - (workers - 1) / (2 * waves);
      assert.deepEqual(seen, { makespan: 3 * workers + idle, idle, least, most: workers });
      const { idle: later } = measure("hanayo", { workers, microBatches: 3 * workers, waves });
      assert.equal(later, idle + 2 * (workers - 1) / waves);
    }
  }
});

Deno.test("Chimera-wave on two groups of D/2 workers has the idle time of Chimera on D", () => {
  for (const depth of [4, 8, 12]) {
    const chimera = measure("chimera", { workers: depth, microBatches: depth });
    // Times are for 1/P of the model: a worker of the wave holds twice of what Chimera's copies hold.
    const wave = measure("chimera-wave", { workers: depth / 2, microBatches: depth / 2 });
    assert.equal(2 * wave.idle!, chimera.idle);
    assert.equal(wave.most, depth / 2);
    assert.equal(wave.least, (depth / 2 + 1) / 2);
  }
});

Deno.test("the greedy order of Chimera's pipes has fewer bubbles at large N", () => {
  const eight = { workers: 8, microBatches: 64 };
  assert.deepEqual(
    [measure("chimera-greedy", eight), measure("chimera", eight)].map((
      { idle, most },
    ) => [idle, most]),
    [[21, 14], [54, 8]],
  );
  const { idle, most } = measure("chimera-greedy", { workers: 16, microBatches: 128 });
  assert.deepEqual([idle, most], [32, 28]);
});

Deno.test("message-driven times are those of its tie rule, with either order and limit", () => {
  const time = (order: "fifo" | "backward-first", pipelineLimit: number) =>
    measure("message-driven", { workers: 8, microBatches: 32, order, pipelineLimit }).makespan;
  assert.deepEqual([time("fifo", 8), time("backward-first", 8)], [126, 120]);
  assert.deepEqual([time("fifo", 15), time("backward-first", 15)], [117, 117]);
  const four = analyze(createSchedule("message-driven", { workers: 4, microBatches: 32 }));
  assert.deepEqual([four.makespan, four.peakActivations], [105, [4, 4, 4, 1]]);
});

Deno.test("ZB-H2 has no bubbles between a worker's first and last action", () => {
  const analysis = analyze(createSchedule("zb-h2", { workers: 4, microBatches: 8 }));
  assert.deepEqual(analysis.idleLocal, [0, 0, 0, 0]);
  assert.equal(analysis.makespan, 3 * 8 + 3);
});

Deno.test("DualPipe has the published bubbles, also where the overlap gains time", () => {
  const schedule = createSchedule("dualpipe", { workers: 8, microBatches: 20 });
  assert.equal(Math.max(...analyze(schedule).idle), 6);
  assert.equal(Math.max(...analyze(schedule, { overlap: 2.5 }).idle), 4.5);
  const uneven = analyze(schedule, { input: 1.2, weight: 0.8 });
  assert.ok(Math.abs(uneven.idle[0]! - 7.2) < 1e-9);
});

Deno.test("looped BFS with fewer micro-batches than workers is slower than its closed form", () => {
  const { idle } = measure("looped-bfs", { workers: 4, microBatches: 3, chunks: 2 });
  assert.equal(idle, 6);
});

Deno.test("PipeDream keeps a version of its weights for each micro-batch in flight", () => {
  const eight = { workers: 4, microBatches: 8 };
  assert.deepEqual(analyze(createSchedule("pipedream", eight)).weights, [4, 3, 2, 1]);
  assert.deepEqual(analyze(createSchedule("pipedream-2bw", eight)).weights, [2, 2, 2, 2]);
});
