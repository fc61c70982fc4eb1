/**
 * The flags of `troupe train` that say what is trained of an ONNX file.
 *
 * @module
 */

/** Sizes by name, as `batch=8,seq=32` says them. */
const DIMENSIONS = /^[^=,]+=[1-9]\d{0,8}(,[^=,]+=[1-9]\d{0,8})*$/;

/** They cannot change when a run goes on. */
export const ONNX_FLAGS = {
  loss: {
    kind: "choice",
    choices: ["cross-entropy", "mse"],
    otherwise: "must be said",
    help: "what is learnt: classes of its output, or numbers like it",
  },
  dimensions: {
    kind: "own",
    value: "NAME=N,…",
    read: (text: string) => DIMENSIONS.test(text) ? text : undefined,
    must: "names and whole numbers from 1 such as batch=8,seq=32",
    otherwise: "its first axes are --micro-batch-size, the second ones of ids --seq",
    help: "sizes of axes that have names in the file",
  },
  output: {
    kind: "text",
    value: "NAME",
    otherwise: "its only output",
    help: "the output that the loss is of",
  },
  label: {
    kind: "text",
    value: "NAME",
    otherwise: "label, labels or targets",
    help: "the field of the data that the loss compares with",
  },
  freeze: {
    kind: "text",
    value: "NAME,…",
    otherwise: "nothing",
    help: "initializers that are not trained; NAME* are all that begin so",
  },
} as const;

/** The sizes that `--dimensions` says, by name. */
export const dimensionsOf = (text: string | undefined): Readonly<Record<string, number>> =>
  Object.fromEntries(
    (text ?? "").split(",").filter(Boolean).map((one) => {
      const at = one.lastIndexOf("=");
      return [one.slice(0, at), Number(one.slice(at + 1))];
    }),
  );
