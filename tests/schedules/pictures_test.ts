import { FOUR, sized } from "./cases.ts";
import assert from "node:assert/strict";
import {
  type Analysis,
  analyze,
  createSchedule,
  formatGrid,
  formatSvg,
  type ScheduleOptions,
} from "../../schedules/mod.ts";
import { inkOf } from "../../schedules/pictures/svg.ts";
import { shortNumber, ticks } from "../../schedules/pictures/grid.ts";

/** Schedules of the pictures: wide, long, replicated, composed, tiny, with odd times. */
const DRAWN: readonly [string, ScheduleOptions, Parameters<typeof analyze>[1]?][] = [
  ["1f1b", { workers: 16, microBatches: 64 }],
  ["interleaved", { workers: 16, microBatches: 64 }],
  ["chimera", { workers: 8, microBatches: 16, pipelines: 2, scale: "doubling" }],
  ["chimera", { workers: 4, microBatches: 8, scale: "halving" }],
  ["dualpipe", { workers: 8, microBatches: 20 }],
  ["hanayo", { workers: 4, microBatches: 4, waves: 2 }],
  ["zb-h2", FOUR, { forward: 1, input: 1.25, weight: 0.6, send: 0.3 }],
  ["message-driven", { workers: 4, microBatches: 6 }],
  ["gpipe", { workers: 1, microBatches: 1 }],
];

/** Registers a test of each picture. */
function drawnTest(title: string, holds: (analysis: Analysis, svg: string, name: string) => void) {
  Deno.test(title, () => {
    for (const [name, options, costs] of DRAWN) {
      const analysis = analyze(createSchedule(name, options), costs);
      holds(analysis, formatSvg(analysis), name);
    }
  });
}

Deno.test("the timeline of 1F1B is drawn as executed", () => {
  const analysis = analyze(sized("1f1b", 3, 3));
  assert.equal(
    formatGrid(analysis),
    `time      0         5         10
worker 0  F0F1F2········B0──··B1──··B2──  idle 6, peak 3
worker 1  ··F0F1····B0──F2B1──··B2──····  idle 6, peak 2
worker 2  ····F0B0──F1B1──F2B2──········  idle 6, peak 1
`,
  );
});

drawnTest("the rows of a timeline line up, and show every action", (analysis, _svg, name) => {
  for (const columns of [60, 120, 400]) {
    const lines = formatGrid(analysis, { columns }).trimEnd().split("\n");
    for (const line of lines) assert.ok([...line].length <= columns, `${name}: ${line}`);
    const blocks = lines.join("\n").split("\n\n").map((block) => block.split("\n"));
    for (const [head, ...rows] of blocks) {
      assert.match(head!, /^time /);
      assert.equal(rows.length, analysis.schedule.workers);
      const widths = rows.map((row) => [...row.replace(/ {2}idle .*$/, "")].length);
      assert.equal(new Set(widths).size, 1, `${name}: rows of unlike length`);
    }
    // All blocks together have every action of the lists.
    analysis.schedule.lists.forEach(({ length }, worker) => {
      const row = blocks.map(([, ...rows]) => rows[worker]!).join("");
      const names = row.match(/[FBIW]\d/g) ?? [], cut = blocks.length - 1; // in two blocks
      assert.ok(names.length >= length - cut, `${name}: ${names.length} of ${length}`);
    });
  }
});

drawnTest("colours change only colours", (analysis) => {
  const plain = formatGrid(analysis).replaceAll("·", " ");
  // deno-lint-ignore no-control-regex -- ANSI codes begin with one
  const colored = formatGrid(analysis, { color: true }).replace(/\x1b\[[\d;]*m/g, "");
  assert.equal(colored, plain);
});

/** The boxes of all texts of a drawing, by an upper estimate of their width. */
function textBoxes(svg: string) {
  const pattern =
    /<g transform="translate\((\S+) (\S+)\)">|^<\/g>$|<text ([^>]*)>([^<]*)<\/text>/gm;
  let [dx, dy] = [0, 0];
  return [...svg.matchAll(pattern)].flatMap(([, x = "0", y = "0", attributes, content = ""]) => {
    if (attributes === undefined) {
      [dx, dy] = [Number(x), Number(y)];
      return [];
    }
    const get = (name: string) => new RegExp(`(?:^| )${name}="([^"]*)"`).exec(attributes)?.[1];
    const size = Number(get("font-size") ?? 11), anchor = get("text-anchor");
    const width = content.length * size * (get("font-weight") === "bold" ? 0.6 : 0.54);
    const left = Number(get("x")) + dx - width * (anchor === "middle" ? 0.5 : anchor ? 1 : 0);
    const middle = Number(get("y")) + dy, half = size * 0.4;
    return [{ content, left, right: left + width, top: middle - half, bottom: middle + half }];
  });
}

drawnTest("no text of a drawing overlaps another or the edge", (_analysis, svg, name) => {
  const width = Number(/ width="([\d.]+)"/.exec(svg)![1]);
  const boxes = textBoxes(svg).sort((a, b) => a.top - b.top || a.left - b.left);
  assert.ok(boxes.length > 10);
  boxes.forEach((box, i) => {
    assert.ok(box.left >= 0 && box.right <= width, `${name}: "${box.content}" is cut off`);
    for (const other of boxes.slice(i + 1)) {
      if (other.top >= box.bottom) break;
      const isApart = other.left >= box.right || other.right <= box.left;
      assert.ok(isApart, `${name}: "${box.content}" overlaps "${other.content}"`);
    }
  });
});

drawnTest(
  "each action has a named cell, and no two swatches are alike",
  ({ schedule }, svg, name) => {
    const cells = svg.match(/<rect x="[^"]*" [^>]*width="[^"]*"[^>]*stroke="#ffffff"/g)!;
    const parts = schedule.lists.flatMap((list) => [...list])
      .reduce((sum, { overlap }) => sum + (overlap === undefined ? 1 : 2), 0);
    assert.equal(cells.length, parts, name);
    const title = ` role="graphics-document">\n<title>${schedule.name}: `;
    assert.ok(svg.startsWith("<svg ") && svg.includes(title));
    const names = [...svg.matchAll(/<g role="graphics-symbol"><title>([^<]+)<\/title><rect /g)];
    assert.equal(names.length, svg.match(/class="edge"/g)!.length);
    const isReplicated = schedule.pipelineOf.some((pipeline) => pipeline > 0);
    const pattern =
      /^\d+[FBIW]\d+(\+\d+|\.[01])?: worker \d+, time [\d.]+ to [\d.]+(, replica \d+)?$/;
    for (const [, name] of names) {
      assert.equal(pattern.exec(name!)?.[2] !== undefined, isReplicated, name);
    }
    assert.equal(svg.match(/<title>worker \d+: at most /g)!.length, schedule.workers);
    const swatches = svg.match(/<rect [^>]*height="13" fill="#\w+"/g)!.map((one) => one.slice(-8));
    assert.ok(swatches.length > 1);
    assert.equal(new Set(swatches).size, swatches.length, name);
  },
);

Deno.test("on a dark screen background, text and lines change and stay legible", () => {
  const svg = formatSvg(analyze(createSchedule("1f1b", FOUR)));
  const [, dark] = /@media \(prefers-color-scheme: dark\) (.*)<\/style>/.exec(svg)!;
  const of = (what: string) =>
    new RegExp(`troupe-schedule${what} { \\w+: (#\\w{6})`).exec(dark!)![1]!;
  assert.ok(contrast(of(""), of(" .paper")) >= 7);
  assert.ok(contrast(of(" .axis"), of(" .paper")) >= 4.5);
  for (const name of ["paper", "edge", "axis", "rule"]) assert.ok(svg.includes(`class="${name}"`));
});

function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
}

function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high! + 0.05) / (low! + 0.05);
}

Deno.test("text is legible on every colour, and every colour is visible on white", () => {
  for (const kind of ["F", "I", "B", "W"] as const) {
    for (let stage = 0; stage < 16; stage++) {
      for (let pipeline = 0; pipeline < 4; pipeline++) {
        const { fill, text } = inkOf(kind, { stage, stages: 16, pipeline, pipelines: 4 });
        assert.ok(contrast(fill, text) >= 4.5, `${kind} ${stage} ${pipeline}: ${fill} ${text}`);
        assert.ok(contrast(fill, "#ffffff") >= 1.15, `${fill} is lost on white`);
      }
    }
  }
});

Deno.test("axes have round ticks", () => {
  assert.deepEqual(ticks(10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(237, 10), [0, 50, 100, 150, 200]);
  assert.deepEqual(ticks(0.3, 3).map(shortNumber), ["0", "0.1", "0.2", "0.3"]);
  assert.deepEqual(ticks(0, 5), [0]);
});
