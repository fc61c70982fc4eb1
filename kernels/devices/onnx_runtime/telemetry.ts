/**
 * Switches off what ONNX Runtime's native library tells its maker.
 *
 * Without this each run writes a log, a device id and a database of events under the user's
 * temporary and home folders, and asks the network for a collector of such events.
 *
 * @module
 */

/** Read by the library, with the C function `getenv`, when its first environment is made. */
export const TELEMETRY_SWITCH = "ORT_DISABLE_TELEMETRY";

/**
 * Call before the library is loaded. It holds for all isolates of the process and for its children.
 *
 * @throws {Error} when this program may not set the variable: the library must not be loaded then.
 */
export function switchOffTelemetry(): void {
  try {
    // Changing the environment while other threads read it is not safe, so only once.
    if (Deno.env.get(TELEMETRY_SWITCH) !== "1") Deno.env.set(TELEMETRY_SWITCH, "1");
  } catch (cause) {
    throw new Error(
      `Cannot load ONNX Runtime: ${TELEMETRY_SWITCH} must be set, or it sends telemetry, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}
