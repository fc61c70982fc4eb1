/**
 * Parameters that are held twice but are one, such as the tables of an embedding and a head.
 *
 * @module
 */

import { sameShape } from "../graph/shapes.ts";
import type { Tie } from "./layer.ts";

/** What a tie must know of a parameter. */
interface Shape {
  readonly shape: readonly number[];
}

/**
 * Refuses ties that no run could keep.
 *
 * @throws {TypeError} when a tie names no parameter, or one that is tied already.
 * @throws {RangeError} when tied parameters differ in shape.
 */
export function checkTies(ties: readonly Tie[], parameters: ReadonlyMap<string, Shape>): void {
  const aliases = new Set<string>();
  for (const [canonical, alias] of ties) {
    const [first, second] = [canonical, alias].map((name) => {
      const parameter = parameters.get(name);
      if (parameter) return parameter;
      throw new TypeError(
        `Cannot tie "${canonical}" and "${alias}": both must be parameters of the model, received no "${name}"`,
      );
    }) as [Shape, Shape];
    if (canonical === alias || aliases.has(alias)) {
      throw new TypeError(
        `Cannot tie "${canonical}" and "${alias}": an alias must be tied once, to another parameter`,
      );
    }
    if (!sameShape(first.shape, second.shape)) {
      throw new RangeError(
        `Cannot tie "${canonical}" and "${alias}": their shapes must be equal, received [${first.shape}] and [${second.shape}]`,
      );
    }
    aliases.add(alias);
  }
  const chained = ties.find(([canonical]) => aliases.has(canonical));
  if (!chained) return;
  throw new TypeError(
    `Cannot tie "${chained[0]}" and "${chained[1]}": the first must not be an alias itself`,
  );
}
