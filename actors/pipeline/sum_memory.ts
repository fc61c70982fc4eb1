/**
 * The memory of several stages as one.
 *
 * @module
 */

import type { StageMemory } from "../../kernels/mod.ts";

/** The sum of several stages. */
export function sumMemory(stages: readonly StageMemory[]): StageMemory {
  const add = <T extends object>(parts: readonly T[]): T =>
    Object.fromEntries(
      Object.keys(parts[0]!).map((key) => [
        key,
        parts.reduce((sum, part) => sum + (part as Record<string, number>)[key]!, 0),
      ]),
    ) as T;
  return {
    device: add(stages.map(({ device }) => device)),
    host: add(stages.map(({ host }) => host)),
  };
}
