/** A dashboard from the folder of a run: what it shows, as it grows, and of strangers' folders. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { delay } from "@std/async/delay";
import { followRun } from "../../../console/dashboard/follow_run.ts";
import type { News } from "../../../console/dashboard/view/view.ts";
import { inFolder, runTroupe, TINY, trainJson } from "../command.ts";

const STEPS = 4;

/** Files of a run that are shown. */
const FILES = ["run.json", "metrics.jsonl", "timeline.jsonl"];

type Test = (run: string, path: (name: string) => string) => Promise<void>;

/** Makes a run that is watched, and gives each test its own copy of what that has left. */
const watched = (tests: Readonly<Record<string, Test>>) => (t: Deno.TestContext) =>
  inFolder(async (folder) => {
    const made = join(folder, "made");
    const train = [...TINY, "--workers", "2", "--schedule", "1f1b", "--eval-every", "2"];
    await trainJson([...train, "--steps", `${STEPS}`, "--dashboard", "--out", made]);
    for (const [i, [name, test]] of Object.entries(tests).entries()) {
      const run = join(folder, `run-${i}`);
      await Deno.mkdir(run);
      for (const file of FILES) await Deno.copyFile(join(made, file), join(run, file));
      await t.step(name, () => test(run, (name) => join(run, name)));
    }
  });

const metricsOf = (step: number) =>
  JSON.stringify({ type: "step", step, time: 1, seconds: 1, loss: 1, tokens: 1, rss: 1 });

/** Looks until there is news of some part. */
async function newsOf<Part extends keyof News>(
  followed: { news(): News | undefined },
  part: Part,
): Promise<NonNullable<News[Part]>> {
  for (;;) {
    const news = followed.news()?.[part];
    if (news) return news;
    await delay(50);
  }
}

Deno.test(
  "the folder of a run that was watched",
  watched({
    "is shown again": async (run) => {
      const { run: facts, status, metrics, evaluations, traces, events } = (await followRun(run))
        .all();
      assert.equal(facts!.title, run);
      assert.deepEqual(facts!.workers, [{ replica: 0, stages: [0] }, { replica: 0, stages: [1] }]);
      assert.deepEqual(status, { status: "finished", step: STEPS, steps: STEPS });
      assert.deepEqual(metrics!.entries.map(({ step }) => step), [1, 2, 3, 4]);
      assert.deepEqual(evaluations!.entries.map(({ step }) => step), [2, 4]);
      assert.deepEqual(traces!.kept, [1, 2, 3, 4]);
      const [first] = traces!.added,
        namesOf = (spans: readonly (readonly [string, ...unknown[]])[]) =>
          spans.map(([name]) => name);
      assert.deepEqual(namesOf(first!.planned[0]!), ["0F0", "0F1", "0B0", "0B1"]);
      assert.deepEqual(namesOf(first!.workers[1]!.spans).slice(0, 4), ["1F0", "1B0", "1F1", "1B1"]);
      assert.deepEqual(events!.entries.map(({ kind, step }) => [kind, step]), [[
        "checkpoint",
        STEPS,
      ]]);
    },
    "is read on as it grows, and anew when the run is begun again": async (run, path) => {
      const followed = await followRun(run);
      followed.news();
      await Deno.writeTextFile(path("metrics.jsonl"), `${metricsOf(5)}\n{"type":`, {
        append: true,
      });
      assert.deepEqual((await newsOf(followed, "metrics")).entries.map(({ step }) => step), [5]);
      await Deno.writeTextFile(path("metrics.jsonl"), `${metricsOf(1)}\n`);
      const record = JSON.parse(await Deno.readTextFile(path("run.json")));
      record.starts.push({ ...record.starts[0], afterStep: 0 });
      delete record.end;
      await Deno.writeTextFile(path("run.json"), JSON.stringify(record));
      const { from, entries } = await newsOf(followed, "metrics");
      assert.deepEqual([from, entries.map(({ step }) => step)], [0, [1]]);
      assert.equal(followed.all().status!.status, "gone", "it has no end, and nobody trains");
    },
    "may lack its timeline, or have text that looks like markup": async (
      run,
      path,
    ) => {
      const text = "<script>alert(1)</script>";
      const record = JSON.parse(await Deno.readTextFile(path("run.json")));
      record.flags = { ...record.flags, schedule: text, [text]: text, workers: 1e9 };
      await Deno.writeTextFile(path("run.json"), JSON.stringify(record));
      await Deno.remove(path("timeline.jsonl"));
      const { run: facts, traces } = (await followRun(run)).all();
      assert.deepEqual(traces, { kept: [], added: [] });
      assert.equal(facts!.workers.length, 2, "as the plan says, since the flags make no schedule");
      const shown = facts!.tables.flatMap(({ rows }) => rows);
      assert.ok(shown.some(([name, value]) => name === text && value === text));
    },
    "is refused in a sentence when it says what no run says": async (
      run,
      path,
    ) => {
      const whole = await Deno.readTextFile(path("run.json"));
      const plan = (change: Record<string, unknown>) => {
        const record = JSON.parse(whole);
        return JSON.stringify({ ...record, plan: { ...record.plan, ...change } });
      };
      const refused: [name: string, text: string, told: RegExp][] = [
        ["run.json", "{}", /run\.json": it must be a file that a run of Troupe has written/],
        ["run.json", plan({ stages: [] }), /its plan must have stages, received/],
        ["run.json", plan({ stages: [{ stage: 0, workers: [1e12] }] }), /plan must have stages/],
        ["run.json", plan({ replicas: 1e9 }), /its plan must have a number of replicas/],
        ["metrics.jsonl", '{"type":"step","step":NaN}\n', /each line must be a JSON object/],
        ["metrics.jsonl", '{"type":"step","step":-1}\n', /each line must have a type/],
        ["metrics.jsonl", "9".repeat(2 ** 24) + "\n", /each line must be a JSON object/],
        [
          "timeline.jsonl",
          '{"type":"step","step":1,"time":0,"traces":[[{"name":1}]]}\n',
          /each line/,
        ],
      ];
      for (const [name, text, told] of refused) {
        const before = await Deno.readTextFile(path(name));
        await Deno.writeTextFile(path(name), text);
        const { code, stdout, stderr } = await runTroupe(["dashboard", run]);
        assert.deepEqual([code, stdout], [2, ""], stderr);
        assert.match(stderr, told);
        assert.equal(stderr.trimEnd().split("\n").length, 1, stderr);
        await Deno.writeTextFile(path(name), before);
      }
      const { code, stderr } = await runTroupe(["dashboard", join(run, "none")]);
      assert.deepEqual([code, /^Cannot read the run/.test(stderr)], [2, true], stderr);
    },
  }),
);
