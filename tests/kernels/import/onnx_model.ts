/**
 * ONNX files written by hand, for tests of what reads them.
 *
 * @module
 */

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import type { Attribute, DType, HostArray } from "../../../kernels/mod.ts";
import { ONNX_DTYPE } from "../../../kernels/graph/value.ts";
import { encodeAttribute, encodeValueInfo } from "../../../kernels/onnx/encode.ts";
import { ModelProtoSchema, type TensorProtoSchema } from "../../../kernels/onnx/onnx_pb.ts";

/** A tensor of a file. */
export interface TestTensor {
  readonly data: HostArray;
  readonly shape?: readonly number[];
}

/** A node: its operation, inputs, outputs, attributes and domain. */
export interface TestNode {
  readonly op: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly domain?: string;
  readonly name?: string;
}

/** A file. */
export interface TestModel {
  readonly opset?: number;
  readonly inputs: Readonly<Record<string, readonly (number | string)[]>>;
  /** Types of inputs that are not f32. */
  readonly types?: Readonly<Record<string, DType>>;
  readonly initializers?: Readonly<Record<string, TestTensor>>;
  readonly nodes: readonly TestNode[];
  /** Names, and types where not f32. */
  readonly outputs: Readonly<Record<string, DType>>;
  /** Changes of an initializer's message. */
  readonly tensors?: Readonly<Record<string, MessageInitShape<typeof TensorProtoSchema>>>;
  /** Marks of PyTorch's exporter on a value. */
  readonly marks?: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

const dtypeOf = (data: HostArray): DType =>
  data instanceof BigInt64Array
    ? "i64"
    : data instanceof Int32Array
    ? "i32"
    : data instanceof Uint8Array
    ? "bool"
    : "f32";

/** The bytes of a file. */
export function onnxModel(model: TestModel): Uint8Array<ArrayBuffer> {
  const { opset = 20, inputs, types = {}, initializers = {}, nodes, outputs, tensors = {} } = model;
  const { marks = {} } = model;
  return toBinary(
    ModelProtoSchema,
    create(ModelProtoSchema, {
      irVersion: 8n,
      graph: {
        name: "test",
        node: nodes.map(({ op, inputs, outputs, attributes = {}, domain = "", name }) => ({
          opType: op,
          domain,
          name: name ?? `/${outputs[0]}/${op}`,
          input: [...inputs],
          output: [...outputs],
          attribute: Object.entries(attributes).map(([key, value]) => encodeAttribute(key, value)),
        })),
        input: Object.entries(inputs).map(([name, shape]) =>
          encodeValueInfo({ name, dtype: types[name] ?? "f32", shape })
        ),
        output: Object.entries(outputs).map(([name, dtype]) => ({
          name,
          type: { value: { case: "tensorType" as const, value: { elemType: ONNX_DTYPE[dtype] } } },
        })),
        initializer: Object.entries(initializers).map(([name, { data, shape }]) => ({
          name,
          dataType: ONNX_DTYPE[dtypeOf(data)],
          dims: (shape ?? [data.length]).map(BigInt),
          rawData: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
          ...tensors[name],
        })),
        valueInfo: Object.entries(marks).map(([name, mark]) => ({
          name,
          metadataProps: Object.entries(mark).map(([key, value]) => ({ key: `pkg.${key}`, value })),
        })),
      },
      opsetImport: [{ domain: "", version: BigInt(opset) }, {
        domain: "com.microsoft",
        version: 1n,
      }],
    }),
  );
}

/** A tensor of the golden files: numbers that differ where it has no data, f32 where it has no type. */
export interface GoldenTensor {
  readonly data?: readonly number[];
  readonly shape?: readonly number[];
  readonly dtype?: "i64";
}

/** Such a tensor as one of a file. */
export const tensorOf = ({ data, shape, dtype }: GoldenTensor): TestTensor => ({
  data: !data
    ? numbers(shape!)
    : dtype
    ? BigInt64Array.from(data, BigInt)
    : Float32Array.from(data),
  ...shape && { shape },
});

/** The lines of `tests/golden/onnx/NAME.jsonl`. */
export const goldenLines = <T>(name: string): T[] =>
  Deno.readTextFileSync(new URL(`../../golden/onnx/${name}.jsonl`, import.meta.url))
    .trimEnd().split("\n").map((line) => JSON.parse(line));

/** Whole numbers as int64. */
export const int64 = (...numbers: readonly number[]): TestTensor => ({
  data: BigInt64Array.from(numbers, BigInt),
});

/** Numbers that differ, from −1 to 1. */
export const numbers = (shape: readonly number[], phase = 0): Float32Array<ArrayBuffer> =>
  Float32Array.from(
    { length: shape.reduce((product, size) => product * size, 1) },
    (_, i) => Math.sin(1.7 * i + phase + 0.1),
  );
