import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import fc from "../fast_check.ts";
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
} from "../../schedules/mod.ts";
import { allCases, inWords, made, refuses } from "./cases.ts";
import { observe } from "./executor.ts";

const SERVED = allCases().filter(({ options }) => options.workers * options.microBatches <= 256)
  .filter((one) => made(one) !== undefined);

/** The placement and everything else that must not change within a run. */
const fixed = ({ workers, stages, placement, updates, weightVersions }: Schedule) => ({
  workers,
  stages,
  placement,
  updates,
  weightVersions,
});

Deno.test("every schedule has one for any number of micro-batches on its placement", () => {
  const property = fc.property(
    fc.constantFrom(...SERVED),
    fc.integer({ min: 1, max: 40 }),
    (one, count) => {
      const schedule = made(one)!, where = `${inWords(one)}, ${count} micro-batches`;
      const smaller = smallerSchedule(schedule, one.options, count);
      assert.equal(smaller.microBatches, count, where);
      assert.equal(smaller.replicaOf.length, count, where);
      assert.deepEqual(fixed(smaller), fixed(schedule), where);
      assert.ok([schedule.name, "1f1b"].includes(smaller.name), where);
      const listed = withLists(smaller);
      assert.deepEqual(validate(listed), [], where);
      if (smaller.name === schedule.name || count > schedule.microBatches) return;
      const held = analyze(schedule).peakActivations;
      analyze(listed).peakActivations.forEach((peak, worker) =>
        assert.ok(peak <= held[worker]!, `${where}: more activations on worker ${worker}`)
      );
    },
  );
  fc.assert(property, { numRuns: atDepth(200, 1500) });
});

Deno.test("a smaller schedule ends, however long actions and messages take", () => {
  const time = fc.double({ min: 0, max: 3, noNaN: true });
  const property = fc.property(
    fc.constantFrom(...SERVED),
    fc.integer({ min: 1, max: 12 }),
    fc.boolean(),
    fc.infiniteStream(time),
    (one, count, isElastic, times) => {
      const schedule = made(one)!, next = () => times.next().value!;
      const whole = isElastic && schedule.lists ? withPolicy(schedule, "elastic") : schedule;
      const smaller = smallerSchedule(whole, one.options, count);
      assert.equal(smaller.listPolicy, whole.listPolicy);
      observe(smaller, { duration: next, send: next });
    },
  );
  fc.assert(property, { numRuns: atDepth(100, 500) });
});

Deno.test("where each worker has one stage, it is 1F1B itself", () => {
  for (const name of ["zb-h1", "zb-h2"]) {
    for (let workers = 1; workers <= 8; workers++) {
      const options = { workers, microBatches: 2 * workers };
      for (let microBatches = 1; microBatches < workers; microBatches++) {
        const smaller = smallerSchedule(createSchedule(name, options), options, microBatches);
        const expected = createSchedule("1f1b", { workers, microBatches });
        assert.deepEqual(smaller.lists!.map(String), expected.lists!.map(String));
        assert.equal(smaller.name, "1f1b");
      }
    }
  }
});

Deno.test("a schedule keeps its name where it can serve fewer micro-batches", () => {
  const names = ["gpipe", "chimera", "gems", "looped-bfs", "message-driven", "chimera-wave"];
  for (const name of names) {
    const limit = name === "message-driven" ? { pipelineLimit: 3 } : {};
    const options = { workers: 4, microBatches: 8, ...limit };
    const schedule = createSchedule(name, options);
    const smaller = smallerSchedule(schedule, options, schedule.microBatches / 2);
    assert.equal(smaller.name, name);
    assert.equal(smaller.injectionLimit, name === "message-driven" ? 3 : smaller.microBatches);
  }
});

Deno.test("the pipes of DualPipe share few micro-batches, and one may get none", () => {
  const options = { workers: 4, microBatches: 8 };
  const schedule = createSchedule("dualpipe", options);
  assert.deepEqual(smallerSchedule(schedule, options, 3).replicaOf, [0, 0, 1]);
  const one = smallerSchedule(schedule, options, 1);
  assert.deepEqual(one.lists!.map(String), ["0F0,0B0", "1F0,1B0", "2F0,2B0", "3F0,3B0"]);
  const none = smallerSchedule(schedule, options, 0);
  assert.deepEqual(none.lists!.map(String), ["", "", "", ""]);
  assert.ok(none.policy(0).done);
});

Deno.test("a schedule of one's own has one too, though it has no name that anyone knows", () => {
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

Deno.test("a number of micro-batches that no step can have is refused", () => {
  const options = { workers: 2, microBatches: 4 };
  for (const count of [-1, 1.5, NaN]) {
    refuses(
      () => smallerSchedule(createSchedule("1f1b", options), options, count),
      "Cannot make a smaller schedule: microBatches must be a whole number from 0, " +
        `received ${count}`,
    );
  }
});
