/**
 * What a node of an ONNX file is.
 *
 * @module
 */

import type { Attribute } from "../../graph/value.ts";
import type { Constant } from "./onnx_tensor.ts";

/** A node of a file. */
export interface OnnxNode {
  /** Its name, or that of its first output. */
  readonly name: string;
  /** ONNX's name of the operation, after its domain where that is not ONNX's own. */
  readonly op: string;
  /** The names of what it reads; empty where it is left out. */
  readonly inputs: readonly string[];
  /** The names of what it computes; empty where nobody wants it. */
  readonly outputs: readonly string[];
  /** Its settings. */
  readonly attributes: Readonly<Record<string, Attribute>>;
  /** The one that is a tensor: `value` of Constant and ConstantOfShape. */
  readonly value?: Constant;
  /** Inputs that are the node's own: settings that were attributes in older opsets, by their place. */
  readonly constants: ReadonlyMap<number, Constant>;
}
