/** `troupe plan`: what it prints, draws and emits, and what it refuses. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { planCommand } from "../../../console/commands/plan.ts";
import { readTrainFlags } from "../../../console/train/train_request.ts";
import { statedProfile, withDearHead } from "../../actors/foresight/planner/stated_profile.ts";
import { inFolder, runTroupe } from "../command.ts";

const SIZES = { layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 256 };

const MODEL = Object.entries(SIZES).flatMap(([name, value]) => [`--${name}`, `${value}`]);

const PLAN = [...MODEL, "--batch", "8"];

/** A file with a profile of the model. */
async function profileIn(folder: string, change: object = {}): Promise<string> {
  const path = join(folder, "profile.json");
  await Deno.writeTextFile(path, JSON.stringify({ ...statedProfile(SIZES, 2), ...change }));
  return path;
}

const CONTEXT = { begin() {}, signal: new AbortController().signal };

/** Bad input, told in one sentence. */
async function refused(args: readonly string[], message: RegExp): Promise<void> {
  const error = await planCommand(args, CONTEXT).then(
    () => assert.fail("bad input must be refused"),
    (error) => error,
  );
  assert.match(error.message, message);
  assert.match(error.message, /^Cannot [^\n]+$/);
}

Deno.test("plans are printed, drawn and told as JSON, each with a reason but the best", () =>
  inFolder(async (folder) => {
    const svg = join(folder, "plan.svg"), profile = await profileIn(folder);
    const args = ["plan", ...PLAN, "--profile", profile];
    const table = await runTroupe([...args, "--svg", svg]);
    assert.equal(table.code, 0, table.stderr);
    assert.match(table.stdout, /^8 samples a step on 2 devices of a made-up cluster \(stated\):$/m);
    assert.match(table.stdout, /^ 1 {2}\S.*%\s+[\d.–]+$/m);
    assert.match(table.stdout, /^ 2 {2}\S.* more/m);
    const drawing = await Deno.readTextFile(svg);
    assert.match(drawing, /^<svg [^>]*role="graphics-document"/);
    assert.match(drawing, /prefers-color-scheme: dark/);
    assert.ok((drawing.match(/<title>/g) ?? []).length > 10);
    const { code, stdout } = await runTroupe([...args, "--format", "json"]);
    assert.equal(code, 0);
    const { format, version, devices, batch, plans, searched } = JSON.parse(stdout);
    assert.deepEqual([format, version, devices, batch], ["troupe-plan", 1, 2, 8]);
    const { candidates, unserved, tooLarge, tooLong, simulated } = searched;
    assert.equal(unserved + tooLarge + tooLong + simulated, candidates);
    assert.equal(plans[0].reason, null);
    for (const { workers, replicas, microBatch, microBatches, reason } of plans.slice(1)) {
      assert.equal(workers * replicas, 2);
      assert.equal(replicas * microBatch * microBatches, 8);
      assert.match(reason, /more|long/);
    }
  }));

Deno.test("what is emitted trains", () =>
  inFolder(async (folder) => {
    const profile = await profileIn(folder);
    const args = ["plan", ...PLAN, "--profile", profile, "--emit"];
    const { code, stdout } = await runTroupe([...args, "3"]);
    assert.equal(code, 0);
    const [, words] = /^deno task train (.*)\n$/.exec(stdout)!;
    const ran = await runTroupe([
      ...["train", ...words!.split(" "), "--steps", "1", "--device", "reference"],
      ...["--runtime", "local", "--json"],
    ]);
    assert.equal(ran.code, 0, ran.stderr);
    assert.equal(JSON.parse(ran.stdout.split("\n")[0]!).step, 1);
  }));

Deno.test("a layout that is chosen is shown, emitted, and trains", () =>
  inFolder(async (folder) => {
    const dear = withDearHead(statedProfile(SIZES, 2), 8);
    const profile = await profileIn(folder, { layers: dear.layers });
    const args = ["plan", ...PLAN, "--profile", profile, "--workers", "2", "--schedules", "1f1b"];
    const { stdout } = await runTroupe([...args, "--json"]);
    const { plans: [{ layout, train, command }], notes } = JSON.parse(stdout);
    assert.deepEqual(notes, []);
    assert.match(layout, /^E,.*\|/);
    assert.equal((await readTrainFlags(train)).flags.layout, layout);
    assert.ok(command.includes(` --layout '${layout}'`), command);
    assert.ok((await runTroupe(args)).stdout.includes(`1f1b, layout ${layout}`));
    const small = ["--steps", "1", "--device", "reference", "--runtime", "local", "--json"];
    const ran = await runTroupe(["train", ...train, ...small]);
    assert.equal(ran.code, 0, ran.stderr);
  }));

Deno.test("more devices than train takes are told, whatever is printed", () =>
  inFolder(async (folder) => {
    const profile = await profileIn(folder), note = /troupe train takes at most 256 workers/;
    const more = ["--devices", "512", "--batch", "512", "--schedules", "1f1b", "--workers", "2"];
    const args = ["plan", ...MODEL, "--profile", profile, ...more];
    const { stdout, stderr } = await runTroupe([...args, "--emit"]);
    assert.match(stdout, /^deno task train [^\n]*--replicas 256[^\n]*\n$/);
    assert.match(stderr, note);
    assert.match(JSON.parse((await runTroupe([...args, "--json"])).stdout).notes[0], note);
  }));

Deno.test("bad input is told in one sentence", () =>
  inFolder(async (folder) => {
    const profile = await profileIn(folder), plan = [...PLAN, "--profile", profile];
    await refused(PLAN, /--profile must name .*; deno task troupe profile --out FILE measures it$/);
    await refused([...MODEL, "--profile", profile], /--batch must say the samples of a step/);
    await refused([...plan, "--devices", "0"], /Cannot use --devices/);
    await refused(
      [...plan, "--memory-limit", "1000"],
      /^Cannot plan within the memory limit: it must be at least \S+ MiB a worker \(with .*\), received 0.00 MiB, \S+ MiB too little$/,
    );
    await refused([...plan, "--devices", "7"], /it must be a multiple of the replicas/);
    await refused([...plan, "--model", "mlp"], /the profile must have the cost of hidden/);
    await refused([...plan, "--device", "gpu"], /the profile must have the device "gpu"/);
    await refused([...plan, "--schedules", "best"], /Cannot use --schedules: it must be of gpipe/);
    await refused([...plan, "4"], /beside flags there must be check, or with --emit a rank/);
    await refused(["check", "--batch", "4"], /flags must be among --device, --devices, --json/);
    await refused(
      [...PLAN, "--profile", await profileIn(folder, { version: 2 })],
      /its version must be 1, received 2/,
    );
  }));
