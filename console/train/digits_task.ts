/**
 * The task of `--model mlp`: an MLP, and the handwritten digits that it learns.
 *
 * @module
 */

import {
  digitBatches,
  type Digits,
  loadDigits,
  mlp,
  mlpLogits,
  openDevice,
  openPredictor,
  shuffledOrder,
} from "../../kernels/mod.ts";
import { quoted } from "../escape.ts";
import { print, printError } from "../print.ts";
import type { Task } from "./task.ts";
import type { TrainRequest } from "./train_request.ts";

/**
 * An MLP, and the digits that it learns.
 *
 * @throws {RangeError} (as a rejection) when the flags name other data.
 */
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
