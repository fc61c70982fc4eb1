/** `troupe profile`: what a machine costs, in a file. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readProfile } from "../../../actors/mod.ts";
import { describeChecked, describeProfile } from "../../../console/foresight/describe_profile.ts";
import { inFolder, runTroupe, TINY, trainJson } from "../command.ts";

const SIZES = ["--layers", "1", "--hidden", "16", "--heads", "2", "--seq", "8", "--vocab", "32"];

Deno.test("a machine is measured: each kind of layer, size and load, each transport, each policy", () =>
  inFolder(async (folder) => {
    const out = join(folder, "machine.json");
    const { code, stdout, stderr } = await runTroupe([
      ...["profile", "--out", out, ...SIZES, "--device", "reference", "--rounds", "1"],
      ...["--micro-batch", "1,2", "--workers", "1", "--recompute", "none,full"],
    ]);
    assert.equal(code, 0, stderr);
    const { source, layers, links, closing } = readProfile(out);
    assert.equal(source, "measured");
    const names = new Set(layers.map((one) => `${one.kind} ${one.microBatch} ${one.recompute}`));
    const kinds = ["embedding", "attention", "mlp", "head"];
    for (const kind of kinds) {
      for (const size of [1, 2]) assert.ok(names.has(`${kind} ${size} none`), `${kind} ${size}`);
    }
    assert.ok(names.has("attention 2 full"));
    assert.ok(layers.every(({ forwardMs, backwardMs }) => forwardMs > 0 && backwardMs > 0));
    assert.deepEqual(Object.keys(links), ["local", "worker", "process"]);
    assert.ok(closing.vote.msPerMillion > 0);
    assert.match(stdout, /^layer +device +B /m);
  }));

Deno.test("costs come out of a trace that train has written", () =>
  inFolder(async (folder) => {
    const trace = join(folder, "trace.json"), out = join(folder, "profile.json");
    await trainJson([...TINY, "--steps", "3", "--workers", "2", "--trace", trace]);
    const args = ["profile", "--from-trace", trace, "--micro-batch", "2", "--out", out];
    const { code, stderr } = await runTroupe(args);
    assert.equal(code, 0, stderr);
    const { source, layers, machine } = readProfile(out);
    assert.equal(source, "trace");
    assert.deepEqual(layers.map(({ kind, sizes }) => `${kind} ${sizes.stage}`), [
      "stage 0",
      "stage 1",
    ]);
    assert.deepEqual([layers[0]!.device, layers[0]!.microBatch], ["reference", 2]);
    assert.equal(machine.cores, 2);
    // A trace from before stages were told has no costs.
    const text = await Deno.readTextFile(trace);
    await Deno.writeTextFile(trace, text.replace(/"shares":\[[^\]]*\],/, ""));
    const old = await runTroupe(args);
    assert.equal(old.code, 2);
    assert.match(old.stderr, /the trace must say what its stages are/);
  }));

Deno.test("what cannot be measured is told before anything is", async () => {
  for (
    const [args, message] of [
      [["--workers", "100000"], /Cannot use --workers/],
      [["--rounds", "1"], /--out must name its file, or --json print it, received neither/],
      [["--out", "/nowhere/profile.json"], /must be a file that can be written/],
      [["--micro-batch", "0", "--json"], /--micro-batch/],
      [["--recompute", "some", "--json"], /--recompute/],
      [["check", "--out", "x"], /flags must be among --device, --workers, --json, received --out/],
      [["chekc"], /did you mean check/],
      [["--from-trace", "nowhere.json", "--json"], /nowhere\.json/],
      [["--from-trace", "x", "--hidden", "4", "--json"], /received --hidden/],
    ] as const
  ) {
    const { code, stderr } = await runTroupe(["profile", ...args]);
    assert.equal(code, 2, `${args}: ${stderr}`);
    assert.match(stderr, message);
  }
});

Deno.test("a miss is explained: the parts of the step beside each other", () => {
  const parts = {
    busyMs: 80,
    dispatchMs: 1,
    messageMs: 2,
    bubbleMs: 10,
    closingMs: 7,
    actions: { "0F": 10 },
  };
  const step = {
    configuration: "1f1b D=2 B=4",
    measured: 100,
    spread: 2,
    predicted: 120,
    error: 0.2,
    parts: { measured: parts, predicted: { ...parts, busyMs: 100 } },
    notes: ["scaled: mlp"],
  };
  const lines = describeChecked(step, false);
  assert.equal(
    lines[0],
    "1f1b D=2 B=4: measured 100.0 ± 2.0 ms, predicted 120.0 (+20.0 %): missed",
  );
  assert.ok(lines.some((line) => /busy +80\.00 +100\.00/.test(line)), lines.join("\n"));
  assert.ok(lines.some((line) => /0F +10\.00 +10\.00/.test(line)));
  assert.equal(describeChecked({ ...step, predicted: 99, error: 0.01 }, true).length, 2);
});

Deno.test("links without copies are moved, with them they have a bandwidth", () => {
  const nothing = { ms: 0, msPerMillion: 0 };
  const lines = describeProfile({
    format: "troupe-profile",
    version: 1,
    source: "stated",
    machine: { name: "paper", cores: 2 },
    layers: [],
    optimizer: nothing,
    reduce: nothing,
    links: { worker: { latencyMs: 0.1 }, process: { latencyMs: 0.2, bytesPerMs: 2e6 } },
    dispatchMs: 0,
    closing: { vote: nothing, norm: nothing, end: nothing, stepMs: 0 },
    notes: [],
  });
  assert.ok(lines.some((line) => /worker +0\.100 +moved/.test(line)), lines.join("\n"));
  assert.ok(lines.some((line) => /process +0\.200 +2\.00/.test(line)));
});
