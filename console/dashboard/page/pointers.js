/**
 * Wheel, drag and pinch over the picture.
 *
 * @module
 */

/**
 * Zooms by the wheel with Ctrl and by two fingers, and moves by dragging.
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
