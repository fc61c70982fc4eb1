/** How many values and gradients of skip edges a worker holds at a time. */

import { KINDS } from "../actions/action_list.ts";
import { comeByTimes, freedBy, peakOfSkips, type Received } from "../edges/skip_levels.ts";
import { leaving, stageWays, type Way } from "../edges/ways.ts";
import type { ListedSchedule } from "../schedule.ts";
import { hostTable } from "../stages.ts";
import type { Costs } from "./costs.ts";
import type { Timeline } from "./execute.ts";
import { stageTimes } from "./stage_times.ts";

/** For each worker the most values and gradients of skip edges, of whole micro-batches, at a time. */
export function peakSkips(
  schedule: ListedSchedule,
  { ends }: Timeline,
  costs: Costs,
): readonly number[] {
  const { lists, stages, replicaOf, slices = 1 } = schedule;
  const ways = stageWays(stages, schedule.edges) ?? [];
  const hosts = hostTable(schedule), { send } = stageTimes(schedule, costs);
  const received = lists.map((): Received[] => []), sizeOf = ({ edges }: Way) => edges.length;
  lists.forEach((list, from) => {
    for (let index = 0; index < list.length; index++) {
      for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
        const share = list.halfAt(part) === 0 ? 1 / slices : 0.5, stage = list.stageAt(part);
        for (const way of leaving(ways, KINDS[list.kindAt(part)] ?? "W", stage)) {
          const to = hosts[replicaOf[list.microBatchAt(part)]! * stages + way.to]!;
          const time = ends[from]![index]! + (to === from ? 0 : send[way.number]! / slices);
          received[to]!.push({ time, size: share * sizeOf(way) });
        }
      }
    }
  });
  const freed = freedBy(ways, sizeOf);
  return lists.map((list, worker) =>
    peakOfSkips(list, { come: comeByTimes(ends[worker]!, received[worker]!), freed })
  );
}
