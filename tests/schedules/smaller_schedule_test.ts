import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import fc, { forAll } from "../fast_check.ts";
import {
  analyze,
  createSchedule,
  defineSchedule,
  looped,
  type Schedule,
  smallerSchedule,
  validate,
  withLists,
  withPolicy,
  withRecomputation,
} from "../../schedules/mod.ts";
import { atAnyPace, FOUR, inWords, made, servedCases, sized } from "./cases.ts";

const SERVED = servedCases(({ workers, microBatches }) => workers * microBatches <= 256);
const servedCase = fc.constantFrom(...SERVED);

/** Facts that must not change within a run, such as the placement. */
const fixed = ({ placement, workers, stages, updates, weightVersions }: Schedule) =>
  JSON.stringify([placement, workers, stages, updates, weightVersions]);

Deno.test("every schedule has one for any number of micro-batches on its placement", () =>
  forAll(atDepth(200, 1500), [servedCase, fc.integer({ min: 1, max: 40 })], (one, count) => {
    const schedule = made(one)!, where = `${inWords(one)}, ${count} micro-batches`;
    const smaller = smallerSchedule(schedule, one.options, count);
    assert.deepEqual([smaller.microBatches, smaller.pipelineOf.length], [count, count], where);
    assert.equal(fixed(smaller), fixed(schedule), where);
    assert.ok([schedule.name, "1f1b"].includes(smaller.name), where);
    const listed = withLists(smaller);
    assert.deepEqual(validate(listed), [], where);
    if (smaller.name === schedule.name || count > schedule.microBatches) return;
    const held = analyze(schedule).peakActivations;
    analyze(listed).peakActivations.forEach((peak, worker) =>
      assert.ok(peak <= held[worker]!, `${where}: more activations on worker ${worker}`)
    );
  }));

Deno.test("a smaller schedule ends, however long actions and messages take", () =>
  forAll(atDepth(100, 500), [
    servedCase,
    fc.integer({ min: 1, max: 12 }),
    fc.boolean(),
    fc.nat(),
  ], (one, count, isElastic, seed) => {
    const schedule = made(one)!;
    const whole = isElastic && schedule.lists ? withPolicy(schedule, "elastic") : schedule;
    const smaller = smallerSchedule(whole, one.options, count);
    assert.equal(smaller.listPolicy, whole.listPolicy);
    assert.deepEqual(validate(atAnyPace(smaller, seed).schedule), [], inWords(one));
  }));

Deno.test("with one stage on each worker, the smaller schedule is 1F1B", () => {
  for (const name of ["zb-h1", "zb-h2"]) {
    for (let workers = 1; workers <= 8; workers++) {
      const options = { workers, microBatches: 2 * workers };
      for (let microBatches = 1; microBatches < workers; microBatches++) {
        const smaller = smallerSchedule(createSchedule(name, options), options, microBatches);
        const expected = sized("1f1b", workers, microBatches);
        assert.deepEqual(smaller.lists!.map(String), expected.lists!.map(String));
        assert.equal(smaller.name, "1f1b");
      }
    }
  }
});

Deno.test("a schedule keeps its name if it can serve fewer micro-batches", () => {
  const names = ["gpipe", "chimera", "gems", "looped-bfs", "message-driven", "chimera-wave"];
  for (const name of names) {
    const options = { ...FOUR, ...name === "message-driven" && { pipelineLimit: 3 } };
    const schedule = createSchedule(name, options), half = schedule.microBatches / 2;
    const smaller = smallerSchedule(schedule, options, half);
    const limit = name === "message-driven" ? 3 : half;
    assert.deepEqual([smaller.name, smaller.injectionLimit], [name, limit]);
  }
});

Deno.test("the pipes of DualPipe share few micro-batches, and one may get none", () => {
  const schedule = createSchedule("dualpipe", FOUR);
  const lists = (count: number) => smallerSchedule(schedule, FOUR, count).lists!.map(String);
  assert.deepEqual(smallerSchedule(schedule, FOUR, 3).pipelineOf, [0, 0, 1]);
  assert.deepEqual(lists(1), ["0F0,0B0", "1F0,1B0", "2F0,2B0", "3F0,3B0"]);
  assert.deepEqual(lists(0), ["", "", "", ""]);
  assert.ok(smallerSchedule(schedule, FOUR, 0).policy(0).done);
});

Deno.test("a user's schedule has a smaller schedule as well", () => {
  const mine = defineSchedule({
    name: "mine",
    summary: "looped, for whole rounds only",
    place(options) {
      if (options.microBatches % 4 !== 0) throw new RangeError("Cannot serve these");
      return looped(options);
    },
    order: (worker, options) => createSchedule("looped-bfs", options).lists![worker]!,
  });
  const options = { workers: 2, microBatches: 8 };
  const smaller = smallerSchedule(mine.create(options), options, 3);
  assert.equal(smaller.name, "1f1b");
  assert.deepEqual(smaller.lists!.map(String), [
    "0F0,0F1,2F0,2F1,0F2,2B0,2B1,0B0,0B1,2F2,2B2,0B2",
    "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1,1F2,3F2,3B2,1B2",
  ]);
  const own = smallerSchedule(mine.create(options), options, 4, mine);
  assert.equal(own.name, "mine"); // its definition serves four, as nobody else could know
  const same = mine.create(options);
  assert.equal(smallerSchedule(same, options, 8), same);
});

Deno.test("a smaller schedule splits and recomputes only what the whole one does, on its pipelines", () => {
  const whole = { workers: 2, microBatches: 4 }, size = { ...whole, microBatches: 3 };
  const oneFOneB = createSchedule("1f1b", size).lists!.map(String);
  const others = [createSchedule("zb-h1", size), withRecomputation(createSchedule("1f1b", size))];
  for (const { lists } of others) {
    const mine = defineSchedule({
      name: "mine",
      summary: "another one for three micro-batches",
      place: (options) => looped({ ...options, chunks: 1 }),
      order: (worker, options) =>
        (options.microBatches === 3 ? lists : createSchedule("1f1b", options).lists)![worker]!,
    });
    const smaller = smallerSchedule(mine.create(whole), whole, 3, mine);
    assert.deepEqual(smaller.lists!.map(String), oneFOneB);
  }
  const options = { ...whole, activationLimit: 4, weightLimit: 2 };
  const { pipelineOf, lists } = smallerSchedule(createSchedule("search", options), options, 3);
  assert.deepEqual(pipelineOf, [0, 1, 0]);
  assert.doesNotMatch(String(lists), /W/);
});
