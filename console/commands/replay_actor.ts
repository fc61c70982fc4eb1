/**
 * Replays an actor of training from the messages of a journal. The journal may come from an
 * untrusted source, so the actor uses this machine's device and no fault, its models read no other
 * file, and sizes are bounded.
 *
 * @module
 */

import { TRAINING_SPECS } from "../../actors/run/run_journal.ts";
import type { ActorFactory, Message } from "../../actors/runtime/mod.ts";
import type { DeviceChoice } from "../../kernels/mod.ts";
import { assertInput, elementCount, refusal, resolveDevices } from "../../kernels/internal.ts";

/** Makes any actor. */
type AnyFactory = ActorFactory<unknown, Message>;

/** Maximum bytes of the tensors of a first message. */
const MEMORY_BYTES = 4 * 2 ** 30;

/** Maximum bytes of a value. */
const VALUE_BYTES = 8;

/** The key of a tensor with data in another file, as ONNX encodes it: a text of 8 bytes. */
const EXTERNAL = "\blocation";

/**
 * Returns the factory of an actor of training; undefined for an actor of another program.
 *
 * @param message the first message of the actor.
 * @throws {RangeError} (as a rejection) if the message exceeds the limits of a replay.
 */
export async function singleActorFactory(message: unknown): Promise<AnyFactory | undefined> {
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

/** Returns the device of a first message as this machine has it. */
async function ownDevice(init: unknown): Promise<{ device?: DeviceChoice }> {
  if (typeof init !== "object" || init === null || !("device" in init)) return {};
  const { name, matrix } = init.device as { name?: unknown; matrix?: unknown };
  const [device] = await resolveDevices(String(name), { precision: matrix ? "bf16" : undefined });
  return { device };
}

/** Checks all values of a message. @throws {RangeError} if they are too large or name a file. */
function assertHarmless(value: unknown, sum: { bytes: number }): void {
  if (typeof value !== "object" || value === null) return;
  if (value instanceof Uint8Array) return assertWhole(value);
  if (ArrayBuffer.isView(value)) return;
  if (value instanceof Map) return [...value.values()].forEach((one) => assertHarmless(one, sum));
  for (const [key, one] of Object.entries(value)) {
    if (key === "shape" && Array.isArray(one)) {
      sum.bytes += VALUE_BYTES * Math.abs(elementCount(one.map(Number)));
      const must = `the tensors of the journal must need at most ${MEMORY_BYTES} bytes`;
      assertInput(sum.bytes <= MEMORY_BYTES, "replay", must, sum.bytes);
    } else assertHarmless(one, sum);
  }
}

function assertWhole(model: Uint8Array): void {
  const text = new TextDecoder("latin1").decode(model);
  if (!text.includes(EXTERNAL)) return;
  throw refusal("replay", "a model of the journal must hold its data", "a model that names a file");
}
