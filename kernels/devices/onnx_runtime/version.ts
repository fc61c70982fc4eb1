/**
 * The version of ONNX Runtime that computes: its packages for Node and for the web are of the same.
 *
 * @module
 */

/** Version of ONNX Runtime, on every device that is made from it. */
export const ORT_VERSION = "1.30.0";
