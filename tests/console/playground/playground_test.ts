/** The playground without a browser: its link, its pictures, and its commands. */

import assert from "node:assert/strict";
import { formatTrace } from "../../../console/run_files/chrome_trace.ts";
import { parseArguments } from "../../../console/parse.ts";
import { flagsOf } from "../../../console/flag.ts";
import {
  analyzeSide,
  CAUSES,
  pictureOf,
  readTrace,
  spansOf,
} from "../../../console/playground/page/play.ts";
import {
  formatLink,
  readLink,
  START,
  trainCommand,
} from "../../../console/playground/page/settings.ts";
import { TRAIN_SYNTAX } from "../../../console/train/flags.ts";
import { formatCsv, scheduleNames } from "../../../schedules/mod.ts";

const pictureIn = (link: string) => {
  const { shared, sides } = readLink(link), analysis = analyzeSide(shared, sides[0]!);
  return { analysis, picture: pictureOf(analysis) };
};

/** Ways in which a schedule is played with. */
const WAYS = [
  "",
  "send=0.3&forward=0.7&weight=1.4",
  "jitter=0.4&seed=3",
  "a.elastic=1&jitter=0.2&send=0.2",
  "a.recompute=1",
  "a.scale=halving",
];

const NAMES = scheduleNames().filter((name) => name !== "search");
/** R is refused beside an action that overlaps another. */
const namesFor = (way: string) =>
  way.includes("recompute") ? NAMES.filter((name) => !name.startsWith("dualpipe")) : NAMES;

for (const way of WAYS) {
  Deno.test(`actions and bubbles fill the time of every worker, and causes the bubbles: ${way || "as given"}`, () => {
    for (const name of namesFor(way)) {
      const { picture } = pictureIn(`a.schedule=${name}&${way}`), { makespan } = picture;
      for (const [worker, { boxes, gaps }] of spansOf(picture).entries()) {
        let end = 0;
        const all = [...boxes.filter(({ lane }) => lane === 0), ...gaps];
        for (const span of all.sort((a, b) => a.from - b.from)) {
          assert.ok(Math.abs(span.from - end) < 1e-6, `${name}, worker ${worker}, ${span.from}`);
          end = span.to;
        }
        assert.ok(Math.abs(end - makespan) < 1e-6, `${name}, worker ${worker}`);
      }
      const sum = picture.causes.reduce((a, b) => a + b, 0);
      assert.ok(Math.abs(sum - picture.bubbleRatio) < 1e-6, name);
    }
  });

  Deno.test(`the critical path leads from the start to the end without idle time: ${way || "as given"}`, () => {
    for (const name of namesFor(way)) {
      const link = `a.schedule=${name}&${way}`, { picture } = pictureIn(link);
      const { critical: { path, counts }, makespan } = picture, { send } = readLink(link).shared;
      let end = 0, messages = 0;
      for (const [i, [worker, from, to]] of path.entries()) {
        const isAway = i > 0 && path[i - 1]![0] !== worker;
        if (isAway) messages++;
        assert.ok(from - end < (isAway ? send : 0) + 1e-6, `${name}: ${from} after ${end}`);
        end = to;
      }
      assert.ok(Math.abs(end - makespan) < 1e-6, name);
      assert.equal(counts.message ?? 0, messages, name);
    }
  });
}

Deno.test("causes are named by what a worker waits for", () => {
  const shares = (link: string) =>
    Object.fromEntries(pictureIn(link).picture.causes.map((share, i) => [CAUSES[i]![0], share]));
  const plain = shares("a.schedule=1f1b");
  assert.deepEqual([plain.forward, plain.message, plain.held], [0, 0, 0]);
  assert.ok(Math.abs(plain.start! - 6 / 132) < 1e-9 && Math.abs(plain.end! - 12 / 132) < 1e-9);
  assert.ok(shares("a.schedule=1f1b&send=0.5").message! > 0);
  assert.ok(shares("a.schedule=gpipe&jitter=0.5").forward! > 0);
  assert.equal(pictureIn("a.schedule=1f1b").picture.messages, 2 * 3 * 8);
  assert.equal(pictureIn("a.schedule=hanayo&a.waves=2").picture.messages, 2 * 2 * 2 * 3 * 8);
});

Deno.test("a link keeps the state, and what it cannot mean becomes the default", () => {
  const links = [
    START,
    "workers=16&microBatches=64&send=0.25&a.schedule=message-driven&a.activationLimit=5.5&a.order=bf",
    "a.schedule=hanayo&a.waves=3&a.elastic=1&b.schedule=own&b.lists=0F0_1F0_1B0_0B0",
    "a.schedule=own&a.lists=0F0_0SEND%7EF0%211RECV%7EF0_1F0", // PyTorch's, with the messages
  ];
  for (const link of links) assert.equal(formatLink(readLink(link)), link);
  const { sides: [, own] } = readLink(links[2]!);
  assert.equal(own!.csv, "0F0,1F0,1B0,0B0");
  const { shared } = readLink("workers=999&microBatches=x&jitter=-1&a.schedule=1f1b");
  assert.deepEqual([shared.workers, shared.microBatches, shared.jitter], [4, 8, 0]);
  assert.equal(readLink(links[3]!).sides[0]!.csv, "0F0,0SEND_F0\n1RECV_F0,1F0");
  assert.equal(formatLink(readLink("workers=16")), `workers=16&${START}`);
  assert.throws(() => readLink("a.schedule=none"), /its name must be one of/);
});

Deno.test("a trace is shown with its own times, and own lists in their order", () => {
  const { analysis } = pictureIn("a.schedule=zb-v&send=0.3&jitter=0.5");
  const { csv, timed } = readTrace(formatTrace(analysis).replace(/\n\]\n$/, ",\n")); // of a killed run
  assert.equal(csv, formatCsv(analysis.schedule.lists));
  const side = { schedule: "own", numbers: {}, words: {}, switches: {}, csv };
  const { shared } = readLink(START), shown = analyzeSide(shared, { ...side, timed });
  assert.ok(Math.abs(shown.makespan - analysis.makespan) < 1e-5);
  analysis.execution.timeline.starts.forEach((starts, worker) =>
    starts.forEach((start, i) =>
      assert.ok(Math.abs(start - shown.execution.timeline.starts[worker]![i]!) < 1e-5)
    )
  );
  assert.ok(analyzeSide(shared, side).makespan > 0);
  assert.throws(() => analyzeSide(shared, { ...side, csv: "0B0,0F0" }), /0B0/);
  const { picture } = pictureIn("a.schedule=own&a.lists=0F0_0F1_0B0_0B1&a.recompute=1");
  assert.equal(picture.rows[0]!.actions, "0F0,0F1,0R0,0B0,0R1,0B1");
  const link = "a.schedule=1f1b&a.elastic=1&a.recompute=1"; // refused by the command, too
  assert.throws(() => pictureIn(link), /must have no R, received some/);
  for (const none of ["[]", '[{"ph":"X","pid":1,"name":"0F0","dur":-1}]']) {
    assert.throws(() => readTrace(none), /must have actions of workers, received none/);
  }
  for (const bad of ["[null]", "[1]", "[{", "{}", '{"traceEvents":[]}']) {
    assert.throws(
      () => readTrace(bad),
      /^RangeError: Cannot read the trace: it must be a JSON list/,
    );
  }
  const many = '{"ph":"X","pid":1,"name":"0F0","ts":1},'.repeat(50_000); // in a moment
  assert.equal(readTrace(`[${many}`).timed.starts[0]!.length, 50_000);
});

Deno.test("the command trains what is shown", () => {
  const flags = flagsOf(TRAIN_SYNTAX);
  const given = (link: string) => {
    const [, , , ...words] = trainCommand(readLink(link), 0).split(" ");
    return parseArguments(words, flags, { takesWords: true }).flags;
  };
  assert.deepEqual(given("workers=8&a.schedule=hanayo&a.waves=2&a.chunks=3&a.recompute=1"), {
    ...{ schedule: "hanayo", workers: 8, "micro-batches": 8, waves: 2, "recompute-ahead": true },
  });
  assert.deepEqual(given("a.schedule=gpipe&a.elastic=1&a.activationLimit=9&a.weightBacklog=2"), {
    ...{ schedule: "gpipe", workers: 4, "micro-batches": 8, policy: "elastic" },
    ...{ "activation-limit": 9, "weight-backlog": 2 },
  });
  for (const name of ["search", "chimera-greedy", "v-half"]) {
    assert.equal(given(`a.schedule=${name}&send=0.5`).send, 0.5); // its order depends on the costs
  }
  const free = "a.schedule=message-driven", listed = `${free}&a.elastic=1&a.recompute=1`;
  assert.deepEqual(given(listed), given(free));
  assert.deepEqual(pictureIn(listed).picture, pictureIn(free).picture);
  assert.deepEqual(given("a.schedule=own"), { "schedule-file": "own.csv" }); // as the page saves it
});
