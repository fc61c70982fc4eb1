/**
 * Figures of the papers that the model does not speak of, each with the reason.
 *
 * @module
 */

import { type PaperRow, uncovered } from "./paper_row.ts";

const TENSOR = "tensor parallelism (DeepSpeed, Megatron-LM) is not modelled";
const VARIANCE = "bytes of each GPU are in a figure that is missing; the variance has no unit";
const PRICES = "prices and operations of a whole training, not of a step";

/** The rows. */
export function uncoveredRows(): PaperRow[] {
  return [
    ...uncovered("chimera", [
      ["1", "savings in training a model like GPT-3", "$", "1.2m to 5m", PRICES],
      ["1", "operations to train GPT-3", "10²¹", 314, PRICES],
      ["1", "years that takes one A100, more than", "", 100, PRICES],
      [
        "1",
        "memory of GPT-3's and Switch's weights",
        "",
        "350 GiB, 6.4 TiB",
        "sizes of other models",
      ],
      [
        "4.1",
        "configurations in which GPipe is out of memory, of six",
        "",
        6,
        "which six they are is in a figure that is missing",
      ],
      [
        "4.1",
        "configurations in which Chimera's peak is below DAPPLE's, of six",
        "",
        4,
        "which six they are is in a figure that is missing",
      ],
    ]),
    ...uncovered("hanayo", [
      ["5.1", "variance of the peak memory, GPipe", "", 1.33, VARIANCE],
      ["5.1", "variance of the peak memory, DAPPLE", "", 16.85, VARIANCE],
      ["5.1", "variance of the peak memory, Chimera", "", 2.86, VARIANCE],
      ["5.1", "variance of the peak memory, Hanayo", "", 1.44, VARIANCE],
      ["1", "growth of models", "", "40-fold, 340-fold", "says nothing of schedules"],
    ]),
    ...uncovered("axonn", [
      ["VII-B", "over DeepSpeed, 100 billion", "×", 1.18, TENSOR],
      ["VII-B", "over Megatron-LM, 100 billion", "×", 2.46, TENSOR],
      ["abstract", "days saved over DeepSpeed", "", "22 to 37", TENSOR],
      ["abstract", "speedup over DeepSpeed", "%", "15 to 25", TENSOR],
      ["VII-B", "share of the peak, DeepSpeed", "%", "39 to 42", TENSOR],
      ["VII-B", "share of the peak, Megatron-LM", "%", "21 to 41", TENSOR],
      ["VII-C", "over DeepSpeed, 12 billion, 384 GPUs", "%", 11.47, TENSOR],
      ["VII-C", "over Megatron-LM, 12 billion, 384 GPUs", "%", 18.14, TENSOR],
      ["VII-B", "GPUs of data parallelism over Megatron-LM's", "×", "4 to 8", TENSOR],
    ]),
  ];
}
