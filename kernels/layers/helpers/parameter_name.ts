/**
 * How parameters are called within a layer.
 *
 * @module
 */

/** Its full name in the layer: PyTorch's own name of it, behind that of the module where it has one. */
export const parameterName = (module: string | undefined, name: string): string =>
  module === undefined ? name : `${module}.${name}`;
