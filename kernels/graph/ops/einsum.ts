/**
 * Sums of products by named axes (Einstein's notation), as products of matrices.
 *
 * @module
 */

import { elementCount } from "../shapes.ts";
import type { Value } from "../value.ts";
import { ReductionGraph } from "./reductions.ts";

/** A tensor whose axes have names, of one letter each. */
interface Named {
  readonly value: Value;
  readonly axes: string;
}

/** A graph to which sums of products are added. */
export class EinsumGraph extends ReductionGraph {
  /**
   * The sum of products that `equation` names: each letter an axis, "ij,jk->ik" the product of two
   * matrices. Axes that the result does not have are summed over; without an arrow it has those that
   * stand once, by the alphabet.
   *
   * @throws {SyntaxError} when the equation is none of these tensors.
   */
  einsum(equation: string, operands: readonly Value[]): Value {
    const [left = "", given] = equation.replaceAll(" ", "").split("->");
    const named = left.split(",").map((axes, i): Named => ({ axes, value: operands[i]! }));
    const once = [...new Set(left.replaceAll(",", ""))].filter((axis) =>
      left.split(axis).length === 2
    );
    const axes = given ?? once.toSorted().join("");
    checkEquation(equation, named, operands, axes);
    const [first, ...rest] = named as [Named, ...Named[]];
    const all = rest.reduce((product, other, i) => {
      const wanted = new Set([axes, ...rest.slice(i + 1).map((later) => later.axes)].join(""));
      return this.#product(this.#summed(product, other.axes, wanted), other, wanted);
    }, first);
    return this.#ordered(this.#summed(all, "", new Set(axes)), axes);
  }

  /** Without the axes that neither another operand nor anybody later has. */
  #summed({ value, axes }: Named, other: string, wanted: ReadonlySet<string>): Named {
    const isKept = (axis: string) => wanted.has(axis) || other.includes(axis);
    const gone = [...axes].flatMap((axis, i) => isKept(axis) ? [] : [i]);
    return { value: this.sum(value, gone), axes: [...axes].filter(isKept).join("") };
  }

  #ordered({ value, axes }: Named, order: string): Value {
    if (axes === order) return value;
    return this.transpose(value, [...order].map((axis) => axes.indexOf(axis)));
  }

  #product(a: Named, given: Named, wanted: ReadonlySet<string>): Named {
    const b = this.#summed(given, a.axes, wanted);
    const only = (of: Named, test: (axis: string) => boolean) => [...of.axes].filter(test).join("");
    const batch = only(a, (axis) => b.axes.includes(axis) && wanted.has(axis));
    const inner = only(a, (axis) => b.axes.includes(axis) && !wanted.has(axis));
    const rows = only(a, (axis) => !b.axes.includes(axis));
    const columns = only(b, (axis) => !a.axes.includes(axis));
    const sizes = new Map(
      [a, b].flatMap(({ axes, value }) =>
        [...axes].map((axis, i) => [axis, value.shape[i]!] as const)
      ),
    );
    const shape = (axes: string) => [...axes].map((axis) => sizes.get(axis)!);
    const matrices = (of: Named, ...parts: readonly [string, string]) =>
      this.reshape(this.#ordered(of, batch + parts.join("")), [
        ...shape(batch),
        ...parts.map((part) => elementCount(shape(part))),
      ]);
    const product = this.matmul(matrices(a, rows, inner), matrices(b, inner, columns));
    const axes = batch + rows + columns;
    return { value: this.reshape(product, shape(axes)), axes };
  }
}

/** The most tensors that are multiplied. */
const OPERANDS_MAX = 20;

function checkEquation(
  equation: string,
  named: readonly Named[],
  operands: readonly Value[],
  result: string,
): void {
  const sizes = new Map<string, number>();
  const fits = ({ axes, value }: Named) =>
    value !== undefined && /^[a-zA-Z]*$/.test(axes) && new Set(axes).size === axes.length &&
    axes.length === value.shape.length &&
    [...axes].every((axis, i) => {
      const size = sizes.get(axis) ?? value.shape[i]!;
      sizes.set(axis, size);
      return size === value.shape[i];
    });
  const isWhole = named.length === operands.length && named.length <= OPERANDS_MAX &&
    named.every(fits) && new Set(result).size === result.length &&
    [...result].every((axis) => sizes.has(axis));
  if (isWhole) return;
  throw new SyntaxError(
    `Cannot multiply by "${equation.slice(0, 200)}": it must name each axis of ${
      operands.slice(0, OPERANDS_MAX).map(({ shape }) => `[${shape}]`).join(" and ")
    } by a letter, once in an operand and alike where sizes are, without "...", and have at most ${OPERANDS_MAX} operands`,
  );
}
