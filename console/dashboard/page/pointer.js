/**
 * Zoom, pan, wheel, drag, pinch, keys and boxes of a timeline.
 *
 * @module
 */

/** From one time to another, in milliseconds of the step. @typedef {{ from: number, to: number }} Range */

/** Minimum visible milliseconds. */
const LENGTH_MIN = 0.01;

/** Zoom factor of a key or a button. */
const ZOOM = 1.5;

/**
 * Opens the visible range, which is the whole step until it is zoomed.
 *
 * @param {() => void} onChange
 */
export function openRange(onChange) {
  /** @type {Range | undefined} */
  let zoomed;
  let end = 1;
  const seen = () => zoomed ?? { from: 0, to: end };
  /** Moves a range into the step. @param {Range} to */
  const within = ({ from, to }) => {
    const length = Math.max(LENGTH_MIN, to - from), most = Math.max(0, end - length);
    const start = Math.min(Math.max(0, from), most);
    return length >= end ? undefined : { from: start, to: start + length };
  };
  /** @param {Range} to */
  const see = (to) => {
    zoomed = within(to);
    onChange();
  };
  /** @param {number} factor of the visible time. @param {number} [at] time that stays in place. */
  const zoom = (factor, at) => {
    const { from, to } = seen(), fixed = at ?? (from + to) / 2;
    see({ from: fixed - (fixed - from) * factor, to: fixed + (to - fixed) * factor });
  };
  return {
    seen,
    zoom,
    zoomIn: () => zoom(1 / ZOOM),
    zoomOut: () => zoom(ZOOM),
    /** Sets the end of the whole step; what is seen stays within it. @param {number} to */
    endAt(to) {
      end = to || 1;
      zoomed &&= within(zoomed);
    },
    /** Shows the whole step. */
    all() {
      zoomed = undefined;
      onChange();
    },
    /** @param {number} part of the visible time. */
    pan(part) {
      const { from, to } = seen(), by = (to - from) * part;
      see({ from: from + by, to: to + by });
    },
    /** Pans until a range is visible. @param {Range} range */
    bring({ from, to }) {
      const now = seen(), half = (now.to - now.from) / 2, middle = (from + to) / 2;
      if (from < now.from || to > now.to) see({ from: middle - half, to: middle + half });
    },
  };
}

/**
 * Zooms with Ctrl and the wheel or two fingers, and pans by dragging.
 *
 * @param {HTMLElement} place
 * @param {{ point(event: PointerEvent): void, pan(part: number): void, zoom(factor: number, at?: number): void, timeAt(x: number): number, hide(): void }} act
 */
export function listenToPointers(place, { point, pan, zoom, timeAt, hide }) {
  /** @type {Map<number, number>} */
  const down = new Map();
  const xOf = (/** @type {MouseEvent} */ event) =>
    event.clientX - place.getBoundingClientRect().left;
  const spread = () => {
    const [a = 0, b = 0] = [...down.values()];
    return { apart: Math.max(10, Math.abs(a - b)), middle: (a + b) / 2 };
  };
  place.addEventListener("wheel", (event) => {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey && !isSideways) return; // the page scrolls
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), timeAt(xOf(event)));
    else pan((isSideways ? event.deltaX : event.deltaY) / place.clientWidth);
  }, { passive: false });
  place.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, xOf(event));
    point(event);
  });
  place.addEventListener("pointermove", (event) => {
    if (event.buttons === 0) down.delete(event.pointerId); // released elsewhere
    const before = down.get(event.pointerId);
    if (before === undefined) return point(event);
    if (!place.hasPointerCapture(event.pointerId)) {
      if (Math.abs(xOf(event) - before) < 3) return;
      place.setPointerCapture(event.pointerId);
    }
    const { apart } = spread();
    down.set(event.pointerId, xOf(event));
    if (down.size > 1) {
      const now = spread();
      zoom(apart / now.apart, timeAt(now.middle));
    } else pan((before - xOf(event)) / place.clientWidth);
    hide();
  });
  const lift = (/** @type {PointerEvent} */ event) => void down.delete(event.pointerId);
  place.addEventListener("pointerup", lift);
  place.addEventListener("pointercancel", lift);
}

/**
 * Opens the visible range of a timeline, which pointers move.
 *
 * @param {HTMLElement} place
 * @param {{ gutter(): number, onChange(): void, point(event: PointerEvent): void, hide(): void }} act
 * `gutter` returns the pixels left of the timeline.
 */
export function openView(place, { gutter, onChange, point, hide }) {
  const range = openRange(onChange);
  const timeAt = (/** @type {number} */ x) => {
    const { from, to } = range.seen(), left = gutter();
    return from + (to - from) * (x - left) / (place.clientWidth - left);
  };
  listenToPointers(place, { point, pan: range.pan, zoom: range.zoom, timeAt, hide });
  const { zoomIn, zoomOut, all } = range;
  new ResizeObserver(() => onChange()).observe(place);
  return { ...range, timeAt, keys: { "+": zoomIn, "=": zoomIn, "-": zoomOut, Home: all } };
}

/**
 * Calls a function for each key without Ctrl, Meta and Alt.
 *
 * @param {HTMLElement} place
 * @param {Readonly<Record<string, () => void>>} keys
 * @param {Readonly<Record<string, () => void>>} shifted with Shift.
 */
export function listenToKeys(place, keys, shifted = keys) {
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = (event.shiftKey ? shifted : keys)[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/**
 * A box of a timeline: its times, and its place in pixels.
 *
 * @typedef {Range & { top: number, height: number }} Placed
 */

/**
 * Returns the box at a height and a time.
 *
 * @template {Placed} B
 * @param {readonly B[]} boxes
 * @param {number} y in pixels.
 * @param {number} time
 * @param {number} near tolerance in time, for thin boxes.
 */
export function boxAt(boxes, y, time, near) {
  const here = boxes.filter(({ top, height, from, to }) =>
    y >= top && y < top + height && time >= from - near && time <= to + near
  );
  return here.find(({ from, to }) => time >= from && time <= to) ?? here[0];
}

/**
 * Returns the box that is next in a row, or the one of another row with the nearest start.
 *
 * @template {Placed} B
 * @param {readonly B[]} boxes
 * @param {B | undefined} chosen
 * @param {number} along
 * @param {number} across
 */
export function boxBeside(boxes, chosen, along, across) {
  const ordered = boxes.toSorted((a, b) => a.top - b.top || a.from - b.from);
  const at = chosen ? ordered.indexOf(chosen) + along : 0;
  if (!chosen || across === 0) return ordered[Math.min(ordered.length - 1, Math.max(0, at))];
  const rows = [...new Set(ordered.map(({ top }) => top))];
  const row = rows[rows.indexOf(chosen.top) + across];
  const away = (/** @type {B} */ { from }) => Math.abs(from - chosen.from);
  const [nearest] = ordered.filter(({ top }) => top === row).sort((a, b) => away(a) - away(b));
  return nearest ?? chosen;
}
