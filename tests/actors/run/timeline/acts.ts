/** Traced actions as short texts. */

import type { TracedAction } from "../../../../actors/pipeline/step.ts";

/**
 * An action: `1F0 5-9` in milliseconds, with `<4.5` when its input came and `>8` when it sent, and a
 * chunk `#1` of stage 0.
 */
export function act(text: string): TracedAction {
  const [, name, start, end, rest] = /^(.*) (-?[\d.]+)-([\d.]+)(.*)$/.exec(text)!;
  const after = (mark: string) =>
    rest!.includes(mark) ? parseFloat(rest!.split(mark)[1]!) : undefined;
  const found = { arrived: after("<"), sent: after(">"), chunk: after("#") };
  const known = Object.entries(found).filter(([, value]) => value !== undefined);
  const stage = found.chunk === undefined ? {} : { stage: 0 };
  return { name: name!, start: +start!, end: +end!, ...Object.fromEntries(known), ...stage };
}

/** Actions, one after the other. */
export const acts = (text: string) => text.split(", ").map(act);
