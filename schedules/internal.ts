/**
 * Names of this room that the rooms above use and that the package does not publish.
 *
 * @module
 */

export { cutInto, endsBackward, parts, WHOLE } from "./action.ts";
export { halvesOf, peakOf } from "./action_list.ts";
export { activationLimitOf, memoryWithin } from "./analysis/memory.ts";
export { followedActions, recomputedStages } from "./analysis/recomputation.ts";
export { scheduleRecord } from "./analysis/report.ts";
export { refuseUnread } from "./define.ts";
export { Readiness } from "./dependencies.ts";
export { ifServed } from "./errors.ts";
export { followList, isOffered, takeOffers } from "./policies.ts";
export { chooseLayout, hostedSchedule, type HostLayout } from "./hosted.ts";
export { splitsBackward, withEdges } from "./schedule.ts";
export { readScenario, SCENARIO_LAWS } from "./simulator/trials.ts";
export { simulateWithin } from "./simulator/simulate.ts";
export {
  ASSUMED,
  chooseTrial,
  mailboxCandidates,
  readCandidate,
  scheduleCandidates,
} from "./simulator/trials.ts";
export { formatEdge } from "./skip_edges.ts";
export { violationError } from "./validate.ts";
