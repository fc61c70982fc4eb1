/**
 * An actor of training that is replayed alone, from the messages of a journal. They may be a
 * stranger's, so what they say of this machine counts for nothing: the device is this machine's own,
 * no fault is suffered, no model reads another file, and sizes are bounded.
 *
 * @module
 */

import { TRAINING_SPECS } from "../../actors/run/run_journal.ts";
import type { ActorFactory, Message } from "../../actors/runtime/mod.ts";
import { type DeviceChoice, elementCount, resolveDevice } from "../../kernels/mod.ts";

/** Makes an actor, whatever it is. */
export type AnyFactory = ActorFactory<unknown, Message>;

/** Most bytes of all tensors that a first message speaks of. */
const MEMORY_BYTES = 4 * 2 ** 30;

/** What a value of a tensor needs at most. */
const VALUE_BYTES = 8;

/** What says in a model that its data lies in another file, as ONNX writes it: a text of 8 letters. */
const EXTERNAL = "\blocation";

/**
 * The factory of an actor of training.
 *
 * @param message the first that the actor got.
 * @returns none when another program made the actor.
 * @throws {RangeError} (as a rejection) when the message wants more than a replay may give.
 */
export async function loneFactory(message: unknown): Promise<AnyFactory | undefined> {
  if (typeof message !== "object" || message === null || !("init" in message)) return undefined;
  const { made, init } = message as { made?: unknown; init: unknown };
  const spec = TRAINING_SPECS.find((one) => one.export === made);
  if (!spec) return undefined;
  assertHarmless(init, { bytes: 0 });
  const own = { ...await ownDevice(init), fault: undefined };
  const exports: Record<string, unknown> = await import(spec.module);
  const factory = exports[spec.export] as AnyFactory;
  return (ctx, recorded) => factory(ctx, { ...recorded as object, ...own });
}

/** The device of a first message, if it has one, as this machine has it. */
async function ownDevice(init: unknown): Promise<{ device?: DeviceChoice }> {
  if (typeof init !== "object" || init === null || !("device" in init)) return {};
  const { name } = init.device as { name?: unknown };
  return { device: await resolveDevice(String(name)) };
}

/** Walks through all that a message holds. @throws {RangeError} at the first thing that is too much. */
function assertHarmless(value: unknown, sum: { bytes: number }): void {
  if (typeof value !== "object" || value === null) return;
  if (value instanceof Uint8Array) return assertWhole(value);
  if (ArrayBuffer.isView(value)) return;
  if (value instanceof Map) return [...value.values()].forEach((one) => assertHarmless(one, sum));
  for (const [key, one] of Object.entries(value)) {
    if (key === "shape" && Array.isArray(one)) {
      sum.bytes += VALUE_BYTES * Math.abs(elementCount(one.map(Number)));
      if (sum.bytes <= MEMORY_BYTES) continue;
      throw new RangeError(
        `Cannot replay: the tensors of the journal must need at most ${MEMORY_BYTES} bytes, ` +
          `received ${sum.bytes}`,
      );
    }
    assertHarmless(one, sum);
  }
}

function assertWhole(model: Uint8Array): void {
  const text = new TextDecoder("latin1").decode(model);
  if (!text.includes(EXTERNAL)) return;
  throw new RangeError(
    "Cannot replay: a model of the journal must hold its own data, received one that names a file",
  );
}
