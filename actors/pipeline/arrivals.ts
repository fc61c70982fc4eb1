/**
 * Inputs that have arrived at a worker for its next actions, and arrays that are used again.
 *
 * @module
 */

import type { Batch, StageValues } from "../../kernels/mod.ts";
import { keyed } from "../../kernels/internal.ts";
import { type Action, formatAction } from "../../schedules/mod.ts";
import { cutInto, endsBackward, WHOLE } from "../../schedules/internal.ts";
import { CompactingMap } from "../runtime/actor.ts";
import { cut, join, joinPassed, mapValues } from "./links.ts";

/** The input of an F or B. */
export interface Arrival {
  readonly tensor?: StageValues;
  readonly fields: Batch;
  /** The time at which another actor's message brought it; only in a traced run. */
  readonly at?: number | undefined;
}

/** The key of a stage and a micro-batch, or of a part of it. */
const keyOf = ({ stage, microBatch, part = WHOLE }: Action) =>
  `${stage}/${microBatch}/${part.index}`;

/** The inputs of a worker's next actions. */
export class Arrivals {
  readonly #inputs = new CompactingMap<string, Arrival>();
  readonly #evaluated = new CompactingMap<string, Arrival & { readonly missing: number }>();
  readonly #returns = new CompactingMap<string, StageValues>();
  readonly #buffers = new Map<number, StageValues[]>();
  #latest: number | undefined;

  /** Keeps an input of an action, together with what other messages have brought for it. */
  keep(action: Action, arrival: Arrival): void {
    const name = formatAction(action), before = this.#inputs.take(name);
    this.#inputs.set(name, before ? together(before, arrival) : arrival);
  }

  /** Keeps an input of an evaluation. @returns all inputs once the given number of messages came. */
  gather(name: string, arrival: Arrival, messages: number): Arrival | undefined {
    const before = this.#evaluated.take(name), missing = (before?.missing ?? messages) - 1;
    const all = before ? together(before, arrival) : arrival;
    if (missing <= 0) return all;
    this.#evaluated.set(name, { ...all, missing });
  }

  /** Removes and returns the input of an F. */
  takeForward(action: Action): Arrival {
    const arrival = this.#take(action);
    if (arrival) return arrival;
    throw new Error(`Cannot run ${formatAction(action)}: its input must have arrived`);
  }

  /** Removes and returns the gradient for a B or I, or for a part of a B. */
  takeGradient({ part, ...action }: Action): StageValues {
    const whole: Action = { ...action, kind: "B" };
    if (part === undefined) {
      const arrival = this.#take(whole);
      if (arrival) return arrival.tensor!;
      // A whole backward whose gradient arrived in parts.
      return joinPassed(
        cutInto(2).map((part) => this.takeForward({ ...whole, part }).tensor!),
        join,
      );
    }
    const own = this.#take({ ...whole, part });
    if (own) return own.tensor!;
    // A whole gradient stays until the last part of its backward runs.
    const arrival = this.takeForward(whole);
    if (!endsBackward({ ...whole, part })) this.#inputs.set(formatAction(whole), arrival);
    return mapValues(arrival.tensor!, (array) => cut(array, part.index, part.count));
  }

  #take(action: Action): Arrival | undefined {
    const arrival = this.#inputs.take(formatAction(action));
    if (arrival?.at !== undefined) this.#latest = Math.max(this.#latest ?? 0, arrival.at);
    return arrival;
  }

  /** Keeps the arrays that brought activations, for the gradients that are sent back. */
  keepReturn(action: Action, arrays: StageValues): void {
    this.#returns.set(keyOf(action), arrays);
  }

  /** Removes and returns the arrays that brought the activations of an action. */
  takeReturn(action: Action): StageValues | undefined {
    return this.#returns.take(keyOf(action));
  }

  /** Keeps the arrays that brought gradients of a stage, for the activations that it sends. */
  keepBuffer(stage: number, arrays: StageValues): void {
    this.#buffers.getOrInsertComputed(stage, () => []).push(arrays);
  }

  /** Removes and returns arrays for the activations of a stage. */
  takeBuffer(stage: number): StageValues | undefined {
    return this.#buffers.get(stage)?.pop();
  }

  /** The arrival of the last input taken since the last call; undefined unless the run is traced. */
  takeLatest(): number | undefined {
    const latest = this.#latest;
    this.#latest = undefined;
    return latest;
  }
}

/** The inputs that two messages have brought. */
function together(a: Arrival, b: Arrival): Arrival {
  return {
    tensor: { ...a.tensor && keyed(a.tensor), ...b.tensor && keyed(b.tensor) },
    fields: { ...a.fields, ...b.fields },
    at: b.at,
  };
}
