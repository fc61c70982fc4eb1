/**
 * Elements and formatted numbers. All text is inserted as text, so that no name or message becomes
 * markup.
 *
 * @module
 */

/**
 * Returns the element with an id.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * Creates an element.
 *
 * @param {string} tag
 * @param {Record<string, string | number | boolean | undefined>} attributes undefined and false are
 * omitted.
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

/**
 * Replaces the children of an element unless they are equal, to keep selection, focus and speech.
 *
 * @param {HTMLElement} place
 * @param {readonly (Node | string)[]} children
 */
export function fill(place, children) {
  const made = document.createElement("div");
  made.append(...children);
  if (made.innerHTML !== place.innerHTML) place.replaceChildren(...made.childNodes);
}

/**
 * Sets the text of an element if it differs.
 *
 * @param {HTMLElement} place
 * @param {string} text
 */
export function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/**
 * Returns a colour of the current style for a canvas.
 *
 * @param {string} name of the variable, such as `--text`.
 */
export function colorOf(name) {
  const probe = element("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/**
 * Sizes a canvas for the pixels of the screen.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {number} width
 * @param {number} height
 */
export function fitCanvas(pen, width, height) {
  const { canvas } = pen, sharp = devicePixelRatio || 1;
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  canvas.style.height = `${height}px`;
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
}

/**
 * Returns a striped pattern for canvases.
 *
 * @param {string} back
 * @param {string} line
 */
export function stripesOf(back, line) {
  const tile = document.createElement("canvas"), pen = tile.getContext("2d");
  tile.width = tile.height = 6;
  if (!pen) return back;
  pen.fillStyle = back;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = line;
  pen.beginPath();
  pen.moveTo(-1, 7);
  pen.lineTo(7, -1);
  pen.stroke();
  return pen.createPattern(tile, "repeat") ?? back;
}

/** Limit of entries in a list. */
const ENTRIES_MAX = 500;

/**
 * Lists the actions and idle times of each worker by their start, for readers of text.
 *
 * @param {readonly (readonly Entry[])[]} workers
 * @param {(entry: Entry) => string} whenOf describes the time of an entry.
 * @typedef {{ name: string, from: number, to: number, isGap?: boolean }} Entry
 */
export function listWorkers(workers, whenOf) {
  return workers.map((entries, worker) => {
    const more = entries.length - ENTRIES_MAX;
    const items = entries.toSorted((a, b) => a.from - b.from).slice(0, ENTRIES_MAX).map((entry) => {
      const { name, from, to, isGap } = entry;
      const data = { "data-name": name, "data-from": from, "data-to": to };
      const words = [
        element("span", { class: "name" }, name),
        element("small", {}, ` ${whenOf(entry)}`),
      ];
      return element("li", { class: isGap ? "gap" : "done", ...data }, ...words);
    });
    if (more > 0) items.push(element("li", {}, `and ${whole(more)} more`));
    const list = element("ol", { "data-worker": worker }, ...items);
    return element("section", {}, element("h3", {}, `worker ${worker}`), list);
  });
}

/**
 * Returns the head and the body of a table.
 *
 * @param {readonly Node[]} head cells.
 * @param {readonly Node[]} rows
 */
export function tableParts(head, rows) {
  return [element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)];
}

/**
 * Returns an entry of a legend.
 *
 * @param {string} text
 * @param {string} color
 * @param {string} [name] class of the coloured box.
 */
export function swatch(text, color, name = "") {
  const box = element("i", { class: name, "aria-hidden": "true" });
  box.style.backgroundColor = color;
  return element("span", {}, box, text);
}

const THEMES = ["as the system", "light", "dark"];

/**
 * Lets the button change the theme of the page.
 *
 * @param {() => void} restyle called when the colours have changed.
 */
export function openThemes(restyle) {
  const button = byId("theme"), { dataset } = document.documentElement;
  let theme = 0;
  const apply = () => {
    if (theme === 0) delete dataset.theme;
    else dataset.theme = THEMES[theme];
    button.title = `Theme: ${THEMES[theme]}`;
    button.setAttribute("aria-label", button.title);
    restyle();
  };
  button.addEventListener("click", () => {
    theme = (theme + 1) % THEMES.length;
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

/** Text in place of an unknown number. */
export const NONE = "–";

/** @type {(digits: number) => Intl.NumberFormat} */
const precise = (digits) => new Intl.NumberFormat("en-US", { maximumSignificantDigits: digits });
const THREE = precise(3), FOUR = precise(4);
const COMPACT = new Intl.NumberFormat("en-US", {
  notation: "compact",
  maximumSignificantDigits: 3,
});
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/**
 * Formats a number with four significant digits; very small and large ones as 3e-5.
 *
 * @param {number | null | undefined} value
 */
export function short(value) {
  if (value === undefined || value === null || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if ((size !== 0 && size < 1e-3) || size >= 1e15) {
    return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  }
  return size >= 1e5 ? COMPACT.format(value) : FOUR.format(value);
}

/**
 * Formats a whole number with commas.
 *
 * @param {number | undefined} value
 */
export function whole(value) {
  return value === undefined || !Number.isFinite(value) ? NONE : WHOLE.format(value);
}

/**
 * Formats milliseconds as µs, ms, s, minutes or hours.
 *
 * @param {number | undefined} ms
 */
export function duration(ms) {
  if (ms === undefined || !Number.isFinite(ms)) return NONE;
  const size = Math.abs(ms);
  if (size < 1) return `${THREE.format(ms * 1000)} µs`;
  if (size < 1000) return `${THREE.format(ms)} ms`;
  if (size < 60_000) return `${THREE.format(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000), seconds = Math.floor(ms / 1000) % 60;
  if (minutes < 10) return `${minutes} min ${seconds} s`;
  if (minutes < 60) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * Formats bytes as KiB, MiB or GiB.
 *
 * @param {number | undefined} count
 */
export function bytes(count) {
  if (count === undefined || !Number.isFinite(count)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = count < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(count) / 10));
  return `${THREE.format(count / 1024 ** power)} ${units[power]}`;
}

/**
 * Formats a share as a percentage.
 *
 * @param {number | undefined} share 0 to 1.
 */
export function percent(share) {
  return share === undefined || !Number.isFinite(share) ? NONE : `${Math.round(100 * share)} %`;
}
