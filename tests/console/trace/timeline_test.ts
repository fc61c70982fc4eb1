import assert from "node:assert/strict";
import type { TracedAction, TrainEvent } from "../../../actors/mod.ts";
import {
  openTimeline,
  readTimeline,
  type TimelineOptions,
} from "../../../console/trace/timeline_file.ts";
import { inFolder } from "../../in_folder.ts";
import { runTrain, TINY, trainJson } from "../command.ts";

const announce = (line: string) => assert.fail(line);

/** A step in which two workers did something. */
function stepOf(step: number, actions = 4): TrainEvent & { type: "step" } {
  const at = 1_700_000_000_000 + 100 * step;
  const act = (name: string, i: number): TracedAction => ({
    name,
    start: at + 10 * i,
    end: at + 10 * i + 7.25,
    arrived: at + 10 * i - 1.5,
    waiting: i,
  });
  const list = (stage: number) =>
    Array.from({ length: actions }, (_, i) => act(`${stage}F${i}`, i));
  const common = { loss: 1, gradNorm: 1, tokensPerSecond: 1, learningRate: 1, lossScale: 1 };
  return { type: "step", step, ...common, predictions: 1, seconds: 1, traces: [list(0), list(1)] };
}

const FAILURE = { type: "failure", step: 3, actor: "worker-1", reason: "gone", time: 5 } as const;

const inTimeline = (
  options: Partial<TimelineOptions>,
  test: (
    path: string,
    open: (more?: Partial<TimelineOptions>) => ReturnType<typeof openTimeline>,
  ) => void,
) =>
  inFolder((folder) => {
    const path = `${folder}/timeline.jsonl`;
    test(path, (more) => openTimeline({ path, steps: 10, announce, ...options, ...more }));
    return Promise.resolve();
  });

const stepsIn = (path: string) =>
  [...readTimeline(path)].map(({ record: { type, step } }) => `${type} ${step}`);

Deno.test("a timeline gives back traced steps and what befell the run, as it grows", () =>
  inTimeline({}, (path, open) => {
    assert.deepEqual([...readTimeline(path)], [], "there is none yet");
    using timeline = open();
    timeline.see(stepOf(1));
    const [first] = readTimeline(path);
    assert.deepEqual(first!.record, { type: "step", step: 1, traces: stepOf(1).traces });
    timeline.see(stepOf(2));
    timeline.see(FAILURE);
    const [second, third] = readTimeline(path, first!.end);
    assert.equal(second!.record.step, 2);
    assert.deepEqual(third!.record, FAILURE);
    Deno.writeTextFileSync(path, '{"type":"ste', { append: true });
    assert.equal(
      [...readTimeline(path)].length,
      3,
      "a line that is being written is not there yet",
    );
  }));

Deno.test("a run that goes on cuts off what its timeline says of later steps", () =>
  inTimeline({}, (path, open) => {
    {
      using timeline = open();
      for (const step of [1, 2, 3]) timeline.see(stepOf(step));
    }
    using timeline = open({ goesOnAfter: 2 });
    timeline.see(stepOf(3));
    assert.deepEqual(stepsIn(path), ["step 1", "step 2", "resumed 2", "step 3"]);
  }));

Deno.test("a long run writes each nth step, such that its timeline tells of all of it within its bound", () =>
  inTimeline({ steps: 5000, bytesMax: 200_000 }, (path, open) => {
    using timeline = open();
    for (let step = 1; step <= 5000; step++) timeline.see(stepOf(step));
    timeline.see(FAILURE);
    const all = [...readTimeline(path)].map(({ record }) => record);
    const steps = all.flatMap(({ type, step }) => type === "step" ? [step] : []);
    assert.ok(Deno.statSync(path).size <= 200_000);
    assert.ok(steps.length > 100, `${steps.length} steps`);
    assert.equal(steps.at(-1), 5000);
    const gaps = new Set(steps.slice(1, -1).map((step, i) => step - steps[i]!));
    assert.equal(gaps.size, 1, "steps are equally far apart");
    assert.deepEqual(all.at(-1), FAILURE);
  }));

Deno.test("a step of more actions than anybody draws is passed over; a stranger's lines are refused", () =>
  inTimeline({}, (path, open) => {
    {
      using timeline = open();
      timeline.see(stepOf(1, 10_000));
      timeline.see(stepOf(2));
    }
    assert.deepEqual(stepsIn(path), ["step 2"]);
    const [line] = Deno.readTextFileSync(path).split("\n") as [string];
    const wrong = [
      line.replace('"step":2', '"step":-1'),
      line.replace('"0F0"', '"0F0x"'),
      line.replace('"0F0"', '"99999999999999999999F0"'),
      line.replace('"start":0', '"start":"0"'),
      line.replace(/"traces":\[.*\]/, '"traces":{}'),
      '{"type":"other","step":1,"time":1}',
    ];
    for (const text of wrong) {
      assert.notEqual(text, line);
      Deno.writeTextFileSync(path, text + "\n");
      assert.throws(
        () => [...readTimeline(path)],
        /^SyntaxError: Cannot read .*timeline\.jsonl: each line/,
      );
    }
  }));

Deno.test("train --trace keeps a timeline in the run's folder, which a resumed run goes on with", () =>
  inFolder(async (folder) => {
    const out = `${folder}/run`, trace = ["--out", out, "--trace", `${folder}/trace.json`];
    await trainJson([...TINY, ...trace, "--steps", "2", "--workers", "2"]);
    await trainJson([...trace, "--resume", out, "--steps", "3"]);
    const kinds = ["step 1", "step 2", "checkpoint 2", "resumed 2", "step 3", "checkpoint 3"];
    assert.deepEqual(stepsIn(`${out}/timeline.jsonl`), kinds);
    const refused = await runTrain([...TINY, "--trace", folder, "--out", `${folder}/other`]);
    assert.equal(refused.code, 2);
    assert.match(refused.stderr, /^Cannot write the trace to .*: it must be a file that can be/);
  }));
