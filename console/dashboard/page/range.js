/**
 * What is seen of the time of a step.
 *
 * @module
 */

/** From one time to another, in milliseconds of the step. @typedef {{ from: number, to: number }} Range */

/** The least that can be seen. */
const LENGTH_MIN = 0.01;

/**
 * Opens a range that has the whole step until somebody zooms.
 *
 * @param {() => void} onChange
 */
export function openRange(onChange) {
  /** @type {Range | undefined} */
  let zoomed;
  let end = 1;
  const seen = () => zoomed ?? { from: 0, to: end };
  /** @param {Range} to */
  const see = ({ from, to }) => {
    const length = Math.max(LENGTH_MIN, to - from), most = Math.max(0, end - length);
    const start = Math.min(Math.max(0, from), most);
    zoomed = length >= end ? undefined : { from: start, to: start + length };
    onChange();
  };
  return {
    seen,
    /** The whole step ends there. @param {number} to */
    endAt(to) {
      end = to || 1;
    },
    /** The whole step. */
    all() {
      zoomed = undefined;
      onChange();
    },
    /** @param {number} factor of the time that is seen. @param {number} [at] what stays in its place. */
    zoom(factor, at) {
      const { from, to } = seen(), fixed = at ?? (from + to) / 2;
      see({ from: fixed - (fixed - from) * factor, to: fixed + (to - fixed) * factor });
    },
    /** @param {number} part of what is seen. */
    pan(part) {
      const { from, to } = seen(), by = (to - from) * part;
      see({ from: from + by, to: to + by });
    },
    /** Makes sure that something is seen whole. @param {Range} what */
    bring({ from, to }) {
      const now = seen(), half = (now.to - now.from) / 2, middle = (from + to) / 2;
      if (from < now.from || to > now.to) see({ from: middle - half, to: middle + half });
    },
  };
}
