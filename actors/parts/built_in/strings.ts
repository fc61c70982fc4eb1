/**
 * `--data sort` and `--data reverse`: strings of digits, and the same digits in another order.
 *
 * @module
 */

import { STRING_VOCABULARY, stringBatches, type StringTask } from "../../../kernels/mod.ts";
import { type DataPart, defineData } from "../data_part.ts";

/** Strings of digits to be sorted. */
export const sort: DataPart = stringPart("sort");

/** Strings of digits to be reversed. */
export const reverse: DataPart = stringPart("reverse");

/** Strings that are held out. */
const HELD_OUT = 256;

function stringPart(task: StringTask): DataPart {
  return defineData({
    name: task,
    version: "1",
    open({ microBatch, microBatches, replicas, seq, seed }) {
      const options = { task, seq, seed };
      return {
        sizes: { vocab: STRING_VOCABULARY },
        batches: stringBatches(options, { microBatch, microBatches, replicas }),
        heldOut: (samples) => {
          const plan = {
            microBatch: samples,
            microBatches: 1,
            steps: Math.ceil(HELD_OUT / samples),
          };
          return [...stringBatches({ ...options, isHeldOut: true }, plan)];
        },
      };
    },
  });
}
