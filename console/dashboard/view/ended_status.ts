/**
 * How a run that came to its end stands.
 *
 * @module
 */

import type { RunEnd } from "../../run_files/run_record.ts";
import type { StatusView } from "./view.ts";

/** How it stands, and why, where that is not told by its steps. */
export function endedStatus(reason: RunEnd["reason"]): Pick<StatusView, "status" | "note"> {
  if (reason === "interrupted") return { status: reason };
  if (reason !== "stopped early") return { status: "finished" };
  return { status: "finished", note: "Stopped early: the held-out loss fell no more." };
}
