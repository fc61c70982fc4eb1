/**
 * The web worker of one side of the playground.
 *
 * @module
 */

import { analyzeSide, exportSide, type Picture, pictureOf } from "./play.ts";
import type { Settings } from "./settings.ts";

/** A request of the page for a picture or a file. */
export interface Request {
  readonly id: number;
  readonly settings: Settings;
  readonly side: number;
  readonly format?: "svg" | "csv";
}

/** The answer: of a search, each better result until the last one. */
export interface Answer {
  readonly id: number;
  readonly isLast: boolean;
  readonly picture?: Picture;
  readonly file?: string;
  readonly error?: string;
}

const answer = (one: Answer) => self.postMessage(one);

self.onmessage = ({ data: { id, settings, side, format } }: MessageEvent<Request>) => {
  const { shared, sides } = settings;
  try {
    if (format) return answer({ id, isLast: true, file: exportSide(settings, side, format) });
    let best = Infinity;
    const analysis = analyzeSide(shared, sides[side]!, (found) => {
      if (found.makespan >= best) return;
      best = found.makespan;
      answer({ id, isLast: false, picture: pictureOf(found) });
    });
    answer({ id, isLast: true, picture: pictureOf(analysis) });
  } catch (error) {
    answer({ id, isLast: true, error: error instanceof Error ? error.message : String(error) });
  }
};
