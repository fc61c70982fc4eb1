/** Checks lowered lists: every message that is sent is received, in the same order. */

import { formatLowered, type LoweredAction, type Transfer } from "./lower.ts";
import type { Violation } from "./validate.ts";

/**
 * Finds messages that are sent and not received, received and not sent, or received in another
 * order than they are sent between two stages.
 *
 * @example A worker that forgot to receive
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, unmatchedTransfers } from "@troupe/troupe/schedules";
 *
 * const lists = [
 *   [F(0, 0), { kind: "SEND_F", stage: 0, microBatch: 0, peer: 1 }, B(0, 0)],
 *   [F(1, 0), B(1, 0)],
 * ] as const;
 * deepStrictEqual(unmatchedTransfers(lists).map(({ message }) => message), [
 *   "worker 0 sends 0SEND_F0, which worker 1 does not receive",
 * ]);
 * ```
 */
export function unmatchedTransfers(
  lists: readonly Iterable<LoweredAction>[],
): Violation[] {
  const edges = new Map<string, { sent: Message[]; received: Message[] }>();
  lists.forEach((list, worker) => {
    for (const action of list) {
      if (!("peer" in action)) continue;
      const isSend = action.kind.startsWith("SEND");
      const step = action.kind.endsWith("F") ? 1 : -1;
      const from = isSend ? worker : action.peer;
      const to = isSend ? action.peer : worker;
      const target = action.stage + (isSend ? step : 0);
      const key = `${from} ${to} ${target} ${step}`;
      const edge = edges.get(key) ?? { sent: [], received: [] };
      edges.set(key, edge);
      const id = `${action.microBatch}.${action.half ?? ""}`;
      edge[isSend ? "sent" : "received"].push({ id, worker, action });
    }
  });
  return [...edges.values()].flatMap(({ sent, received }) => edgeViolations(sent, received));
}

interface Message {
  readonly id: string;
  readonly worker: number;
  readonly action: Transfer;
}

function edgeViolations(sent: readonly Message[], received: readonly Message[]): Violation[] {
  const lost = without(sent, received).map(({ worker, action }) =>
    unmatched(
      worker,
      `sends ${formatLowered(action)}, which worker ${action.peer} does not receive`,
    )
  );
  const invented = without(received, sent).map(({ worker, action }) =>
    unmatched(worker, `awaits ${formatLowered(action)}, which worker ${action.peer} does not send`)
  );
  if (lost.length + invented.length > 0) return [...lost, ...invented];
  const swapped = received.find(({ id }, i) => id !== sent[i]?.id);
  if (swapped === undefined) return [];
  const { worker, action } = swapped;
  const name = formatLowered(action);
  return [unmatched(worker, `awaits ${name} in another order than worker ${action.peer} sends`)];
}

function without(messages: readonly Message[], others: readonly Message[]): Message[] {
  const counts = new Map<string, number>();
  for (const { id } of others) counts.set(id, (counts.get(id) ?? 0) + 1);
  return messages.filter(({ id }) => {
    const count = counts.get(id) ?? 0;
    counts.set(id, count - 1);
    return count <= 0;
  });
}

function unmatched(worker: number, what: string): Violation {
  return { reason: "unmatched", worker, message: `worker ${worker} ${what}` };
}
