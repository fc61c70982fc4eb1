/**
 * `troupe profile --from-trace FILE`: the costs of a traced run.
 *
 * @module
 */

import { profileOfTrace } from "../../actors/foresight/profile/from_trace.ts";
import type { Profile } from "../../actors/foresight/profile/profile.ts";
import { inOneLine } from "../escape.ts";
import { openTrace, type TraceHead } from "../trace/read_trace.ts";

/** How messages travelled, by where actors ran; workers may have been processes, which no trace says. */
const TRANSPORTS: Readonly<Record<string, string>> = {
  workers: "worker",
  local: "local",
  serial: "local",
  mpi: "mpi",
};

/**
 * Reads the costs of a traced run.
 *
 * @param given samples of a micro-batch of the run, where they were typed; older traces do not say
 * them.
 * @throws {SyntaxError} when it is no trace, or one from before traces told of stages.
 * @throws {RangeError} when it has no step.
 * @throws {TypeError} when nothing says the samples of a micro-batch, or two say others.
 */
export function tracedProfile(path: string, given: readonly number[] = []): Profile {
  const refuse = (which = ""): never => {
    throw new TypeError(
      `Cannot take costs from a trace: --micro-batch-size must be that of its run${which}, received ${
        given.join(",") || "none"
      }`,
    );
  };
  if (given.length > 1) refuse();
  const { head, steps } = openTrace(path), about = stagesOf(head, path);
  const { microBatch = given[0] } = about;
  if (microBatch === undefined) return refuse(", which the file does not say");
  if (given.some((one) => one !== microBatch)) refuse(`, ${microBatch}`);
  const transport = TRANSPORTS[head.runtime] ?? "worker", { replicas } = head;
  return profileOfTrace({ ...about, transport, replicas, microBatch }, steps);
}

function stagesOf({ about }: TraceHead, path: string): NonNullable<TraceHead["about"]> {
  if (about && about.parameters.length > 0) return about;
  throw new SyntaxError(
    `Cannot take costs from ${inOneLine(path)}: the trace must say what its stages are, as those ` +
      `do that troupe train --trace writes now, received none; trace a run again`,
  );
}
