/**
 * Trains a model that a module exports, on two workers under Chimera, and has an actor of the same
 * package, which may do nothing else, count what its experts do:
 *
 *     deno run -A examples/registry_actor/train.ts [MODULE] [STEPS] [DEVICE]
 */
// deno-lint-ignore-file no-console -- the output of the script

import { findComponent, importComponent } from "@troupe/troupe/actors";
import { openTask, packageActor, train } from "@troupe/troupe/actors";
import { createSystem, openDevice, openPredictor } from "@troupe/troupe";
import type { actor, Watching } from "./mod.ts";

const [module = import.meta.resolve("./mod.ts"), steps = "200", device = "auto"] = Deno.args;

// A module is hashed before it runs; for a name of troupe.json the hash must match.
const found = await findComponent("model", module);
console.log(`${found.name}: ${found.integrity}`);
const model = await importComponent(found),
  mnist = await importComponent(await findComponent("data", "mnist"));
const experts = 4, classes = 10;
const sizes = { layers: 2, hidden: 32, heads: 1, experts, seq: 1, vocab: undefined, tie: false };
const cut = { microBatch: 32, microBatches: 4, replicas: 1, steps: Number(steps), seed: 1 };
const task = await openTask(model.value, mnist.value, {
  ...{ ...sizes, ...cut, tokenizer: "bytes", file: undefined },
  announce: (line) => console.log(line),
});

// The actor gets a process without permissions, and messages from this script alone.
await using system = createSystem();
const spec = packageActor<Parameters<typeof actor.create>[1], Watching>({
  from: found.from,
  protocol: 1,
});
const watcher = system.spawn(spec, { classes, experts }, { id: "watcher" });

const run = train({
  ...{ model: task.model, data: task.data, steps: cut.steps, microBatches: cut.microBatches },
  workers: 2,
  schedule: "chimera",
  learningRate: 0.003,
  device: device as "auto",
});
for await (const event of run) {
  if (event.type === "step" && event.step % 50 === 0) {
    console.log(event.step, event.loss.toFixed(3));
  }
  if (event.type !== "end") continue;
  console.log(`weights ${event.weightsHash}`);
  const opened = await openDevice(event.choice.name, event.choice);
  const predict = await openPredictor(opened, task.model.predicting!, event.weights);
  for (const { features, labels } of task.heldOut!()) {
    const votes = await predict({ features: features! });
    system.send(watcher, { type: "Predicted", votes, labels: labels as Int32Array });
  }
  opened.close();
}

const { samples, right, routed } = await system.ask(watcher, { type: "Report" });
for (const [digit, loads] of routed.entries()) {
  const shares = loads.map((load) => `${Math.round(100 * load / samples[digit]!)} %`.padStart(5));
  console.log(`${digit}: ${right[digit]}/${samples[digit]} right, experts ${shares.join(" ")}`);
}
const sum = (counts: number[]) => counts.reduce((a, b) => a + b, 0);
console.log(`${(100 * sum(right) / sum(samples)).toFixed(1)} % recognised`);
