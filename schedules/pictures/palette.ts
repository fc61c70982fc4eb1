/** The colours of a drawn schedule, chosen to be told apart by colour-blind readers, too. */

import type { ActionKind } from "../actions/action.ts";

/** A colour and the colour of text that is legible on it. */
export interface Ink {
  /** The colour as `#rrggbb`. */
  readonly fill: string;
  /** Black or white. */
  readonly text: string;
}

/**
 * The lightness of each kind. Backwards are darker than forwards, and the parts of a split
 * backward lie on both sides of the whole; a recomputation is a forward again, so next to it.
 */
const LIGHTNESS: Readonly<Record<ActionKind, number>> = {
  F: 0.9,
  R: 0.84,
  I: 0.77,
  B: 0.67,
  W: 0.54,
};

const BLACK = "#000000";
const WHITE = "#ffffff";

/** Where black and white text have the same contrast, 4.6 to 1; lighter colours take black. */
const EVEN_LIGHTNESS = 0.565;

/** How much darker the last replica is than the first. */
const REPLICA_SHADE = 0.09;

/**
 * The ends of the stages' colours in OKLab's (a, b): blue and orange, the one axis that all common
 * kinds of colour blindness keep. Stages lie between them over grey.
 */
const FIRST_STAGE = { a: -0.035, b: -0.105 };
const LAST_STAGE = { a: 0.045, b: 0.115 };

/**
 * The colour of an action: hue by stage, from blue to orange, lightness by kind and replica.
 */
export function inkOf(
  kind: ActionKind,
  { stage, stages, replica, replicas }: {
    stage: number;
    stages: number;
    replica: number;
    replicas: number;
  },
): Ink {
  const position = stages === 1 ? 0 : stage / (stages - 1);
  const shade = replicas === 1 ? 0 : REPLICA_SHADE * replica / (replicas - 1);
  const lightness = LIGHTNESS[kind] - shade;
  const a = FIRST_STAGE.a + (LAST_STAGE.a - FIRST_STAGE.a) * position;
  const b = FIRST_STAGE.b + (LAST_STAGE.b - FIRST_STAGE.b) * position;
  return { fill: oklabToHex(lightness, a, b), text: lightness > EVEN_LIGHTNESS ? BLACK : WHITE };
}

/** The grey of a kind of action, whatever its stage. */
export function neutralInk(kind: ActionKind): Ink {
  const lightness = LIGHTNESS[kind];
  return { fill: oklabToHex(lightness, 0, 0), text: lightness > EVEN_LIGHTNESS ? BLACK : WHITE };
}

/** OKLab (Ottosson 2020) to sRGB, cut off at its limits. */
function oklabToHex(lightness: number, a: number, b: number): string {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return "#" + linear.map((channel) => {
    const clipped = Math.min(1, Math.max(0, channel));
    const gamma = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
    return Math.round(gamma * 255).toString(16).padStart(2, "0");
  }).join("");
}
