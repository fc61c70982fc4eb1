/**
 * The actions and bubbles of a picture, in the form that is drawn and described.
 *
 * @module
 */

import type { Picture, Row } from "./play.ts";

/** From one time to another. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** An action, or one of two that overlap. */
export interface Box extends Range {
  readonly name: string;
  readonly kind: "F" | "B" | "I" | "W" | "R";
  readonly stage: number;
  readonly pipeline: number;
  /** Its micro-batch, with its part. */
  readonly label: string;
  /** Its number among overlapping actions, and their count. */
  readonly lane: number;
  readonly lanes: number;
  readonly isCritical: boolean;
}

/** A bubble, or a part of it with one cause. */
export interface Gap extends Range {
  /** Index in {@linkcode CAUSES}. */
  readonly cause: number;
  readonly text: string;
}

/** The actions and bubbles of a worker, each in order of time. */
export interface Spans {
  readonly boxes: readonly Box[];
  readonly gaps: readonly Gap[];
}

/** Reads the rows of a picture. */
export const spansOf = (picture: Picture): Spans[] =>
  picture.rows.map((row) => ({ boxes: boxesOf(row, picture.pipelineOf), gaps: gapsOf(row) }));

function boxesOf({ actions, starts, ends, critical }: Row, pipelineOf: readonly number[]): Box[] {
  return actions.split(",").flatMap((action, i) => {
    const names = action.split("&");
    return names.map((name, lane): Box => {
      const at = name.search(/[A-Z]/), label = name.slice(at + 1);
      return {
        ...{ name, label, kind: name[at] as Box["kind"], stage: Number(name.slice(0, at)) },
        ...{ pipeline: pipelineOf[parseInt(label)] ?? 0, lane, lanes: names.length },
        ...{ from: starts[i]!, to: ends[i]!, isCritical: critical[i] === 1 },
      };
    });
  });
}

const gapsOf = ({ gaps: { cause, from, to, text } }: Row): Gap[] =>
  cause.map((one, i) => ({ cause: one, from: from[i]!, to: to[i]!, text: text[i]! }));
