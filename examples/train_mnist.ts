/**
 * An MLP that learns handwritten digits on two workers, and how many it then knows:
 *
 *     deno run -A examples/train_mnist.ts [STEPS] [DEVICE]
 */
// deno-lint-ignore-file no-console -- the output of the script

import {
  digitBatches,
  loadDigits,
  mlp,
  mlpLogits,
  openDevice,
  openPredictor,
} from "@troupe/troupe";
import { shuffledOrder, train } from "@troupe/troupe";

const [steps = "200", device = "auto"] = Deno.args;
const config = { inputs: 784, hidden: 128, layers: 2, classes: 10 };
const microBatch = 32, microBatches = 4;

const digits = await loadDigits();
const order = shuffledOrder(digits.train.labels.length, 1);

const run = train({
  model: mlp(config, microBatch),
  data: digitBatches(digits.train, { microBatch, microBatches, order }),
  steps: Number(steps),
  microBatches,
  workers: 2,
  schedule: "1f1b",
  learningRate: 0.002,
  device: device as "auto",
});

for await (const event of run) {
  if (event.type === "step" && event.step % 20 === 0) {
    console.log(event.step, event.loss.toFixed(3));
  }
  if (event.type !== "end") continue;

  // The same layers without the loss predict: their output is the logits of the ten classes.
  const predicting = await openDevice(event.choice.name, event.choice);
  const predict = await openPredictor(predicting, mlpLogits(config, 1), event.weights);
  let right = 0, all = 0;
  for (const digit of digitBatches(digits.heldOut, { microBatch: 1, microBatches: 1 })) {
    const logits = await predict({ features: digit.features });
    if (logits.indexOf(Math.max(...logits)) === digit.labels[0]) right++;
    all++;
  }
  predicting.close();
  console.log(`${(100 * right / all).toFixed(1)} % of the held-out digits are recognised`);
}
