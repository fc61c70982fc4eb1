/** What the actions of a schedule cost: durations for each stage, and the time of a message. */

/**
 * A cost for 1/P of the model (P workers of a pipeline), of which a stage takes its share; or, for
 * stages that are not alike, a cost for each of any number of slices of the model, of which a stage
 * takes the sum of its own.
 */
export type Cost = number | readonly number[];

/** Durations, all in one unit of the caller's choice. */
export interface Costs {
  /** A forward; 1 unless given. */
  readonly forward?: Cost | undefined;
  /** A full backward; the sum of its two parts where they are given, else 2. */
  readonly backward?: Cost | undefined;
  /** The backward for the input; half of the full backward unless given. */
  readonly input?: Cost | undefined;
  /** The backward for the weights; what is left of the full backward unless given. */
  readonly weight?: Cost | undefined;
  /** A recomputation; that of a forward unless given. */
  readonly recompute?: Cost | undefined;
  /** A forward and a full backward that overlap; the sum of both unless given. */
  readonly overlap?: number | undefined;
  /**
   * A message between two workers, which keeps neither of them busy; 0 unless given. An array
   * has the time from each slice of the model to the next.
   */
  readonly send?: Cost | undefined;
  /**
   * A value or its gradient between two workers over a skip edge: of all edges, or of each in their
   * order. As the message from the stage that makes it to the next one unless given.
   */
  readonly skip?: number | readonly number[] | undefined;
}
