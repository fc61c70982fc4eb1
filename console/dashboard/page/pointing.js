/**
 * Which box of the picture is pointed at, by a pointer or by keys, and what is said of it.
 *
 * @module
 */

import { byId, say } from "./elements.js";
import { describe } from "./picture.js";

/** @import { Box, Layout } from "./picture.js" */

/** Pixels beside a box that are near enough: some boxes are thin. */
const NEAR = 1.5;
const TIP_WIDTH = 320;

/**
 * Opens it with nothing that is pointed at.
 *
 * @param {HTMLElement} place of the picture.
 * @param {() => Layout | undefined} layoutNow
 * @param {(x: number) => number} timeAt the time at so many pixels.
 */
export function openPointing(place, layoutNow, timeAt) {
  const tip = byId("tip");
  /** @type {Box | undefined} */
  let chosen;
  const hide = () => {
    tip.hidden = true;
  };
  /** @param {number} x @param {number} y */
  const boxAt = (x, y) => {
    const layout = layoutNow();
    if (!layout || x < layout.gutter) return undefined;
    const time = timeAt(x), near = (timeAt(1) - timeAt(0)) * NEAR;
    const here = layout.boxes.filter(({ top, height, from, to }) =>
      y >= top && y < top + height && time >= from - near && time <= to + near
    );
    return here.find(({ from, to }) => time >= from && time <= to) ?? here[0];
  };
  return {
    /** The box that is pointed at. */
    chosen: () => chosen,
    /** Says no more of it. */
    hide,
    /** Nothing is pointed at. */
    clear() {
      chosen = undefined;
      hide();
    },
    /** The pointer is there: says what is below it. @param {PointerEvent} event */
    point({ clientX, clientY }) {
      const { left, top } = place.getBoundingClientRect(), x = clientX - left, y = clientY - top;
      chosen = boxAt(x, y);
      tip.hidden = !chosen;
      if (!chosen) return;
      say(tip, describe(chosen));
      tip.style.maxWidth = `${Math.min(TIP_WIDTH, place.clientWidth - 8)}px`;
      const right = place.clientWidth - tip.offsetWidth - 4;
      tip.style.left = `${Math.max(0, Math.min(x + 12, right))}px`;
      tip.style.top = `${y + 18}px`;
    },
    /**
     * Goes so many boxes along a row, and so many rows down, and says what is there.
     *
     * @param {number} along
     * @param {number} across
     * @returns {Box | undefined}
     */
    step(along, across) {
      const boxes = (layoutNow()?.boxes ?? []).toSorted((a, b) => a.top - b.top || a.from - b.from);
      const at = chosen ? boxes.indexOf(chosen) : -1, now = boxes[at];
      chosen = across !== 0 && now
        ? besideRow(boxes, now, across)
        : boxes[Math.min(boxes.length - 1, Math.max(0, at + along))];
      if (chosen) say(byId("told"), describe(chosen));
      return chosen;
    },
  };
}

/**
 * The box of another row that begins when this one does, or nearly so.
 *
 * @param {readonly Box[]} boxes
 * @param {Box} now
 * @param {number} across
 */
function besideRow(boxes, now, across) {
  const rows = [...new Set(boxes.map(({ top }) => top))];
  const row = rows[rows.indexOf(now.top) + across];
  const away = (/** @type {Box} */ { from }) => Math.abs(from - now.from);
  const [nearest] = boxes.filter(({ top }) => top === row).sort((a, b) => away(a) - away(b));
  return nearest ?? now;
}
