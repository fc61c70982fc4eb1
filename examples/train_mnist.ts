/**
 * Trains an MLP on real handwritten digits with a pipeline of stage actors:
 * `deno run -A examples/train_mnist.ts`.
 *
 * @module
 */

import {
  digitBatches,
  loadDigits,
  mlp,
  mlpLogits,
  openDevice,
  openPredictor,
  shuffledOrder,
  train,
} from "../mod.ts";
import { type Digits } from "../kernels/mod.ts";
import { print, printError, quoted, type Task, type TrainRequest } from "../console/mod.ts";

/** An MLP, and the digits that it learns. */
export async function digitsTask({ flags, microBatches }: TrainRequest): Promise<Task> {
  const { data = "mnist", text, tokens } = flags;
  if (data !== "mnist" || text || tokens) {
    throw new RangeError(
      `Cannot train the mlp: --data must be mnist, received ${quoted(text ?? tokens ?? data)}`,
    );
  }
  const { train: digits, heldOut } = await loadDigits(printError);
  const config = { inputs: 784, hidden: flags.hidden, layers: flags.layers, classes: 10 };
  const cut = { microBatch: flags["micro-batch"], microBatches, replicas: flags.replicas };
  const order = shuffledOrder(digits.labels.length, flags.seed);
  return {
    model: mlp(config, cut.microBatch),
    data: digitBatches(digits, { ...cut, order }),
    heldOut: () => [...digitBatches(heldOut, { microBatch: cut.microBatch, microBatches: 1 })],
    config: { architecture: "mlp", ...config },
    async show(weights, choice) {
      const device = await openDevice(choice.name, choice);
      const predict = await openPredictor(device, mlpLogits(config, 1), weights);
      const share = await accuracy(predict, heldOut);
      print(`\n${(100 * share).toFixed(1)} % of the held-out digits are recognised`);
      device.close();
    },
  };
}

/** The share of digits whose highest logit is that of their label. */
async function accuracy(
  predict: (fields: { features: Float32Array }) => Promise<Float32Array>,
  digits: Digits,
): Promise<number> {
  let right = 0;
  for (const { features, labels } of digitBatches(digits, { microBatch: 1, microBatches: 1 })) {
    const logits = await predict({ features });
    if (logits.indexOf(Math.max(...logits)) === labels[0]) right++;
  }
  return right / digits.labels.length;
}

if (import.meta.main) {
  const { train: digits } = await loadDigits(printError);
  const order = shuffledOrder(digits.labels.length, 1);
  for await (
    const event of train({
      model: mlp({ inputs: 784, hidden: 128, layers: 2, classes: 10 }, 32),
      data: digitBatches(digits, { microBatch: 32, microBatches: 4, order }),
      steps: 200,
      microBatches: 4,
      workers: 2,
      schedule: "1f1b",
    })
  ) {
    if (event.type === "step" && event.step % 20 === 0) {
      print(`step ${event.step}: loss ${event.loss.toFixed(3)}`);
    }
  }
}
