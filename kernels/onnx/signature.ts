/**
 * What an ONNX model takes and gives: names, dtypes and shapes of its inputs and outputs.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import type { DType, Tensor } from "../devices/device.ts";
import { sameShape } from "../graph/shapes.ts";
import { ONNX_DTYPE } from "../graph/value.ts";
import { type GraphProto, ModelProtoSchema, type ValueInfoProto } from "./onnx_pb.ts";

/** One input or output of a model. */
export interface Border {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
}

/** The inputs and outputs of a model, in the order in which it lists them. */
export interface Signature {
  readonly inputs: readonly Border[];
  readonly outputs: readonly Border[];
}

const DTYPES = new Map(
  (Object.keys(ONNX_DTYPE) as DType[]).map((dtype) => [ONNX_DTYPE[dtype], dtype]),
);

/**
 * Reads the signature of a model given as protobuf bytes.
 *
 * @throws {TypeError} when an input or output has a dynamic shape or an unknown dtype.
 */
export function readSignature(model: Uint8Array): Signature {
  return signatureOf(fromBinary(ModelProtoSchema, model).graph);
}

/** The signature of a graph; see {@linkcode readSignature}. */
export function signatureOf(graph: GraphProto | undefined): Signature {
  const constants = new Set(graph?.initializer.map((constant) => constant.name));
  return {
    inputs: (graph?.input ?? []).filter(({ name }) => !constants.has(name)).map(readBorder),
    outputs: (graph?.output ?? []).map(readBorder),
  };
}

function readBorder({ name, type }: ValueInfoProto): Border {
  const tensor = type?.value.case === "tensorType" ? type.value.value : undefined;
  const dtype = DTYPES.get(tensor?.elemType ?? 0), dims = tensor?.shape?.dim;
  if (!name || !dtype || !dims || dims.some(({ value }) => value.case === "dimParam")) {
    throw new TypeError(
      `Cannot compile the model: "${name}" must be a tensor of a known dtype and a static shape`,
    );
  }
  return { name, dtype, shape: dims.map(({ value }) => Number(value.value ?? 0)) };
}

/**
 * The tensors of `given` in the order of `borders`.
 *
 * @throws {TypeError} when a name is missing or unknown, or a dtype or shape differs.
 */
export function matchTensors(
  what: "input" | "output",
  borders: readonly Border[],
  given: Readonly<Record<string, Tensor>>,
): Tensor[] {
  const names = borders.map((border) => border.name);
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) {
      throw new TypeError(
        `Cannot bind ${what} "${name}": it must be one of [${names.join(", ")}]`,
      );
    }
  }
  return borders.map(({ name, dtype, shape }) => {
    const tensor = given[name];
    if (tensor === undefined) {
      throw new TypeError(
        `Cannot bind: ${what} "${name}" must be given, received [${Object.keys(given).join(", ")}]`,
      );
    }
    if (tensor.dtype !== dtype || !sameShape(tensor.shape, shape)) {
      throw new TypeError(
        `Cannot bind ${what} "${name}": it must be ${dtype} [${shape}], received ${tensor.dtype} [${tensor.shape}]`,
      );
    }
    return tensor;
  });
}
