/**
 * Sums over the ranks of a column, as the communication worker of each of them makes them.
 *
 * [Note: one order, no deadlock] MPI matches what the ranks of a communicator begin by its order
 * alone. Each group has a communicator of its own, the n-th sum of a group is the n-th that is begun
 * there, and each member gives its arrays in the same order as all others; so what is matched belongs
 * together, whatever the order among groups and whoever is ahead. Nothing waits for one sum before it
 * begins that of another group, and all that are under way are tested in turn: none keeps another
 * from its end.
 *
 * [Note: half-begun sums] When the members of a group have failed, some ranks have begun sums that
 * others never will. MPI cannot take those back, nor close while they are under way. So the ranks tell
 * each other what they have begun, and who is behind begins the rest with zeros.
 *
 * [Note: transfers] MPI moves bytes while it is called, and may say that a send is done when its bytes
 * are still in a buffer of its own, or a connection is still coming about. So a rank that is idle calls
 * it now and then, for those who wait for the rest, which takes less than a hundredth of a core.
 *
 * @module
 */

import { setImmediate } from "node:timers";
import type { Addend } from "../../runtime/transport.ts";
import { type Communicator, type Mpi, type MpiRequest, yieldCore } from "./library.ts";
import { gatherValues } from "./wire.ts";

/** A group, as the ranks of its members in order; a rank that has several members is there as often. */
export type GroupRanks = readonly number[];

/**
 * Indices of groups, by the division in which they get their communicators: those of one division
 * have no rank in common. A group on one rank needs none.
 *
 * The columns of a pipeline that is replicated are all in one; where a rank holds several stages, as
 * in Chimera, there are as many divisions as it holds.
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

/** A test carries a part of a large transfer; so many are made before others have their turn. */
const TESTS = 8;

/** How often an idle rank calls MPI, in milliseconds. */
const IDLE_MS = 20;

/** Waits for transfers. */
export class Transfers {
  readonly #mpi: Pick<Mpi, "test" | "advance">;
  readonly #failed: (error: Error) => void;
  #waiting: { readonly request: MpiRequest; readonly done: () => void }[] = [];
  #isPolling = false;
  readonly #idle: (() => void)[] = [];
  readonly #timer = setInterval(() => this.#isPolling || this.#poll(), IDLE_MS);

  /** @param failed called when a transfer fails. */
  constructor(mpi: Pick<Mpi, "test" | "advance">, failed: (error: Error) => void) {
    this.#mpi = mpi;
    this.#failed = failed;
  }

  /** Resolves when a transfer is over. */
  end(request: MpiRequest): Promise<void> {
    return new Promise((done) => {
      this.#waiting.push({ request, done });
      if (this.#isPolling) return;
      this.#isPolling = true;
      queueMicrotask(() => this.#poll());
    });
  }

  /** Resolves when nothing is under way. */
  settled(): Promise<void> {
    return this.#waiting.length === 0
      ? Promise.resolve()
      : new Promise((resolve) => this.#idle.push(resolve));
  }

  /** MPI is called no more. */
  close(): void {
    clearInterval(this.#timer);
  }

  #poll(): void {
    try {
      for (const done of this.#test()) done();
    } catch (error) {
      this.#waiting = [];
      this.close();
      this.#failed(error as Error);
    }
    this.#isPolling = this.#waiting.length > 0;
    if (this.#isPolling) {
      yieldCore();
      setImmediate(() => this.#poll());
    } else for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Tests all that is under way, until something is over or it has been done often enough. */
  #test(): (() => void)[] {
    const finished: (() => void)[] = [];
    if (this.#waiting.length === 0) this.#mpi.advance();
    for (let n = 0; n < TESTS && this.#waiting.length > 0 && finished.length === 0; n++) {
      this.#waiting = this.#waiting.filter(({ request, done }) => {
        const isDone = this.#mpi.test(request);
        if (isDone) finished.push(done);
        return !isDone;
      });
    }
    return finished;
  }
}

/** What is done with sums: the array is nobody else's. */
type Take = (sums: Float32Array<ArrayBuffer>) => void;

/** An array on its way to a sum, or the sums on their way back, by a number of the isolate's own. */
export interface SumFrame {
  readonly nth: number;
  readonly addend: Addend;
}

/** A sum that is under way on this rank. */
interface UnderWay {
  readonly length: number;
  readonly ended: Promise<void>;
}

/** A group, as a rank has it that is one of its ranks. */
interface Column {
  /** None where all members live here. */
  readonly communicator: Communicator | undefined;
  /** What each member that lives here has given and is not begun, by its place in the group. */
  readonly given: ReadonlyMap<number, { readonly values: Addend["values"]; readonly take: Take }[]>;
  /** Sums that have been begun here, and of these what is under way. */
  begun: number;
  readonly underWay: Map<number, UnderWay>;
}

/** What a rank tells the others of a group: how many sums it has begun, and the lengths of some. */
type Begun = readonly [begun: number, lengths: Readonly<Record<number, number>>];

/** The sums of a rank, which begins without groups. */
export class ColumnSums {
  readonly #mpi: Mpi;
  readonly #transfers: Transfers;
  #columns = new Map<number, Column>();
  /** What has been given to groups that are not open. */
  #early: [Addend, Take][] | undefined = [];
  #isOpen = Promise.resolve();

  /** @param mpi MPI, of this thread alone. */
  constructor(mpi: Mpi, transfers: Transfers) {
    this.#mpi = mpi;
    this.#transfers = transfers;
  }

  /** Begins anew with these groups; every rank calls it. What is given from now on is for them. */
  open(groups: readonly GroupRanks[]): Promise<void> {
    const given: [Addend, Take][] = this.#early = [];
    return this.#isOpen = this.#isOpen.then(async () => {
      await this.#level();
      this.#columns = divide(this.#mpi, groups);
      if (this.#early === given) this.#early = undefined;
      for (const one of given) this.#addHere(...one);
    });
  }

  /** Takes the array of a member that lives here; `take` gets the sums. */
  add(addend: Addend, take: Take): void {
    if (this.#early) this.#early.push([addend, take]);
    else this.#addHere(addend, take);
  }

  /** Ends all that is under way; every rank calls it. */
  close(): Promise<void> {
    return this.#isOpen.then(() => this.#level());
  }

  #begin(column: Column, values: Addend["values"], take: Take): void {
    const { communicator, underWay } = column, nth = column.begun++;
    if (!communicator) return take(values);
    const ended = this.#transfers.end(this.#mpi.allReduce(values, communicator)).then(() => {
      underWay.delete(nth);
      take(values);
    });
    underWay.set(nth, { length: values.length, ended });
  }

  #addHere({ group, member, values }: Addend, take: Take): void {
    const column = this.#columns.get(group), own = column?.given.get(member);
    if (!column || !own) {
      throw new RangeError(
        `Cannot add: member ${member} of group ${group} must live on rank ${this.#mpi.rank}`,
      );
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

  /** Has all ranks begin what one has begun, and waits for its end. */
  async #level(): Promise<void> {
    const mpi = this.#mpi, columns = this.#columns;
    await this.#transfers.end(mpi.barrier());
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

/** The groups of this rank, with their communicators; every rank calls it. */
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
