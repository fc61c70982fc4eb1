/**
 * In how few divisions of all ranks every group gets a communicator of its own.
 *
 * @module
 */

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
