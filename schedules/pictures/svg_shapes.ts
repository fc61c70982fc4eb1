/** Lines and texts of a drawing. */

const AXIS_COLOR = "#444444";

/** A line of an axis. */
export function axisLine(x1: number, y1: number, x2: number, y2: number): string {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" ` +
    `class="axis" stroke="${AXIS_COLOR}" stroke-width="1"/>`;
}

/** What the drawing, or a part of it, is called: by screen readers, and where a pointer rests. */
export const title = (content: string): string => `<title>${escapeXml(content)}</title>`;

/** A text, centred on the height `y`; from `x` on, unless it is anchored otherwise. */
export function text(
  x: number,
  y: number,
  content: string,
  style: { anchor?: string; size?: number; fill?: string; weight?: string },
): string {
  const attributes = [
    `x="${round(x)}" y="${round(y)}" dy="0.35em"`,
    style.anchor === undefined ? "" : ` text-anchor="${style.anchor}"`,
    style.size === undefined ? "" : ` font-size="${style.size}"`,
    style.fill === undefined ? "" : ` fill="${style.fill}"`,
    style.weight === undefined ? "" : ` font-weight="${style.weight}"`,
  ];
  return `<text ${attributes.join("")}>${escapeXml(content)}</text>`;
}

function escapeXml(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** A coordinate, to a hundredth of a pixel. */
export function round(value: number): number {
  return Math.round(value * 100) / 100;
}
