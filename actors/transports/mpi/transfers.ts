/**
 * Sums over the ranks of a column, in the communication worker of each rank.
 *
 * [Note: one order, no deadlock] MPI matches the operations of a communicator only by the order in
 * which its ranks start them. Each group has a separate communicator, and all members of a group
 * add their arrays in the same order, so the n-th sum of the group is the n-th operation of its
 * communicator. So matching operations belong together in any order of groups, and when some ranks
 * are ahead. No sum waits for a sum of another group before it starts, and all pending sums are
 * tested in turn, so they cannot block each other.
 *
 * [Note: half-begun sums] When members of a group have failed, some ranks have started sums that
 * other ranks never start. MPI cannot cancel them, and cannot be finalized while they are pending.
 * So the ranks tell each other what they have started, and the other ranks start the missing sums
 * with zeros.
 *
 * [Note: transfers] MPI only moves bytes during calls. It may report a send as complete while the
 * bytes are still in an internal buffer or the connection is not yet established. So an idle rank
 * calls MPI periodically for the ranks that wait for the rest, which takes less than a hundredth of
 * a core.
 *
 * @module
 */

import { setImmediate } from "node:timers";
import type { Addend } from "../../runtime/transport.ts";
import { type Communicator, type Mpi, type MpiRequest, yieldCore } from "./library.ts";
import { gatherValues } from "./wire.ts";

/** Ranks of the members of a group, in order. A rank with several members is repeated. */
export type GroupRanks = readonly number[];

/**
 * Divides groups into rounds in which communicators are created, and returns the group indices of
 * each round. Groups of a round share no rank. Groups on a single rank need no communicator.
 *
 * The columns of a replicated pipeline are all in one round. If ranks hold several stages, as in
 * Chimera, there are as many rounds as stages per rank.
 */
export function columnRounds(groups: readonly GroupRanks[]): number[][] {
  const rounds: { readonly ranks: Set<number>; readonly groups: number[] }[] = [];
  for (const [group, members] of groups.entries()) {
    const ranks = new Set(members);
    if (ranks.size < 2) continue;
    let round = rounds.find((one) => one.ranks.isDisjointFrom(ranks));
    if (!round) rounds.push(round = { ranks: new Set(), groups: [] });
    for (const rank of ranks) round.ranks.add(rank);
    round.groups.push(group);
  }
  return rounds.map(({ groups }) => groups);
}

/** Tests per poll: each test moves part of a large transfer. */
const TESTS = 8;

/** Milliseconds between two calls of MPI on an idle rank. */
const IDLE_MS = 20;

/** Polls pending transfers until they are complete. */
export class Transfers {
  #waiting: { readonly request: MpiRequest; readonly done: () => void }[] = [];
  #isPolling = false;
  readonly #idle: (() => void)[] = [];
  readonly #timer = setInterval(() => this.#isPolling || this.#poll(), IDLE_MS);

  /** @param failed called when a transfer fails. */
  constructor(
    private readonly mpi: Pick<Mpi, "test" | "advance">,
    private readonly failed: (error: Error) => void,
  ) {}

  /** Resolves when a transfer is complete. */
  end(request: MpiRequest): Promise<void> {
    return new Promise((done) => {
      this.#waiting.push({ request, done });
      if (this.#isPolling) return;
      this.#isPolling = true;
      queueMicrotask(() => this.#poll());
    });
  }

  /** Resolves when no transfer is pending. */
  settled(): Promise<void> {
    return this.#waiting.length === 0
      ? Promise.resolve()
      : new Promise((resolve) => this.#idle.push(resolve));
  }

  /** Stops calling MPI. */
  close(): void {
    clearInterval(this.#timer);
  }

  #poll(): void {
    try {
      for (const done of this.#test()) done();
    } catch (error) {
      this.#waiting = [];
      this.close();
      this.failed(error as Error);
    }
    this.#isPolling = this.#waiting.length > 0;
    if (this.#isPolling) {
      yieldCore();
      setImmediate(() => this.#poll());
    } else for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Tests all pending transfers, at most {@linkcode TESTS} times or until one is complete. */
  #test(): (() => void)[] {
    const finished: (() => void)[] = [];
    if (this.#waiting.length === 0) this.mpi.advance();
    for (let n = 0; n < TESTS && this.#waiting.length > 0 && finished.length === 0; n++) {
      this.#waiting = this.#waiting.filter(({ request, done }) => {
        const isDone = this.mpi.test(request);
        if (isDone) finished.push(done);
        return !isDone;
      });
    }
    return finished;
  }
}

/** Receives the sums, in an array that it owns. */
type Take = (sums: Float32Array<ArrayBuffer>) => void;

/** An array to be summed, or its sums on the way back, with a number that the isolate assigns. */
export interface SumFrame {
  readonly nth: number;
  readonly addend: Addend;
}

/** A group with members on this rank. */
interface Column {
  /** Undefined when all members are on this rank. */
  readonly communicator: Communicator | undefined;
  /** Arrays of each member on this rank that are not started yet, by place in the group. */
  readonly given: ReadonlyMap<number, { readonly values: Addend["values"]; readonly take: Take }[]>;
  /** Number of sums that this rank has started; `underWay` contains the pending ones. */
  begun: number;
  readonly underWay: Map<number, { readonly length: number; readonly ended: Promise<void> }>;
}

/**
 * Report of a rank about a group: the number of sums it has started, and the lengths of pending
 * ones.
 */
type Begun = readonly [begun: number, lengths: Readonly<Record<number, number>>];

/** Sums of the groups of a rank; there are no groups until {@linkcode ColumnSums.open}. */
export class ColumnSums {
  #columns = new Map<number, Column>();
  /** Arrays added before their groups are open. */
  #early: [Addend, Take][] | undefined = [];
  #isOpen = Promise.resolve();

  /** @param mpi MPI, which only this thread calls. */
  constructor(private readonly mpi: Mpi, private readonly transfers: Transfers) {}

  /**
   * Replaces the groups; every rank calls it. Arrays added from now on belong to the new groups.
   */
  open(groups: readonly GroupRanks[]): Promise<void> {
    const given: [Addend, Take][] = this.#early = [];
    return this.#isOpen = this.#isOpen.then(async () => {
      await this.#level();
      this.#columns = divide(this.mpi, groups);
      if (this.#early === given) this.#early = undefined;
      for (const one of given) this.#addHere(...one);
    });
  }

  /** Adds the array of a member on this rank; `take` receives the sums. */
  add(addend: Addend, take: Take): void {
    if (this.#early) this.#early.push([addend, take]);
    else this.#addHere(addend, take);
  }

  /** Completes all pending sums; every rank calls it. */
  close(): Promise<void> {
    return this.#isOpen.then(() => this.#level());
  }

  #begin(column: Column, values: Addend["values"], take: Take): void {
    const { communicator, underWay } = column, nth = column.begun++;
    if (!communicator) return take(values);
    const ended = this.transfers.end(this.mpi.allReduce(values, communicator)).then(() => {
      underWay.delete(nth);
      take(values);
    });
    underWay.set(nth, { length: values.length, ended });
  }

  #addHere({ group, member, values }: Addend, take: Take): void {
    const column = this.#columns.get(group), own = column?.given.get(member);
    if (!column || !own) {
      const must = `member ${member} of group ${group} must live on rank ${this.mpi.rank}`;
      throw new RangeError(`Cannot add: ${must}`);
    }
    own.push({ values, take });
    const all = [...column.given.values()];
    if (all.some((one) => one.length === 0)) return;
    const [first, ...others] = all.map((one) => one.shift()!);
    for (const { values } of others) addInto(first!.values, values);
    this.#begin(column, first!.values, (sums) => {
      for (const { take } of others) take(sums.slice());
      first!.take(sums);
    });
  }

  /** Starts the sums that other ranks have started, and waits for all pending ones. */
  async #level(): Promise<void> {
    const mpi = this.mpi, columns = this.#columns;
    await this.transfers.end(mpi.barrier());
    const own = [...columns].map(([group, { begun, underWay }]): [number, Begun] => [
      group,
      [begun, Object.fromEntries([...underWay].map(([nth, { length }]) => [nth, length]))],
    ]);
    const all = gatherValues<Record<number, Begun | undefined>>(mpi, Object.fromEntries(own));
    for (const [group, column] of columns) {
      const others = all.map((one) => one[group]).filter((one) => one !== undefined);
      const most = Math.max(...others.map(([begun]) => begun));
      while (column.begun < most) {
        const length = others.map(([, lengths]) => lengths[column.begun]).find((one) => one)!;
        this.#begin(column, new Float32Array(length), () => {});
      }
    }
    const left = [...columns.values()].flatMap(({ underWay }) => [...underWay.values()]);
    await Promise.all(left.map(({ ended }) => ended));
    for (const { communicator } of columns.values()) if (communicator) mpi.free(communicator);
    this.#columns = new Map();
  }
}

/** Returns the groups of this rank with their communicators; every rank calls it. */
function divide(mpi: Mpi, groups: readonly GroupRanks[]): Map<number, Column> {
  const own = new Map<number, Communicator>();
  for (const round of columnRounds(groups)) {
    const group = round.find((one) => groups[one]!.includes(mpi.rank));
    const communicator = mpi.split(group);
    if (communicator) own.set(group!, communicator);
  }
  return new Map(
    [...groups.entries()].filter(([, ranks]) => ranks.includes(mpi.rank)).map(([group, ranks]) => {
      const here = [...ranks.keys()].filter((member) => ranks[member] === mpi.rank);
      const given = new Map(here.map((member) => [member, []]));
      return [group, { communicator: own.get(group), given, begun: 0, underWay: new Map() }];
    }),
  );
}

function addInto(sums: Float32Array, values: Float32Array): void {
  for (let i = 0; i < sums.length; i++) sums[i]! += values[i]!;
}
