/**
 * Elements of the page. All text goes in as text, so that no name or message becomes markup.
 *
 * @module
 */

/**
 * The element of the page with an id.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * A new element.
 *
 * @param {string} tag
 * @param {Record<string, string | number | boolean | undefined>} attributes those that are undefined
 * or false are left out.
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
 * Puts children into a place, unless they say what stands there already: what is selected, focused
 * or read aloud stays so.
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
 * Puts a text into a place.
 *
 * @param {HTMLElement} place
 * @param {string} text
 */
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/**
 * A colour of the style in force, as a canvas takes it.
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
