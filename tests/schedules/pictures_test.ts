import { refuses } from "./cases.ts";
import assert from "node:assert/strict";
import {
  analyze,
  createSchedule,
  formatGrid,
  formatSvg,
  type ScheduleOptions,
} from "../../schedules/mod.ts";
import { inkOf } from "../../schedules/pictures/palette.ts";
import { shortNumber, ticks } from "../../schedules/pictures/ticks.ts";

/** What the pictures are held against: wide, long, replicated, composed, tiny, with odd times. */
const DRAWN: readonly [string, ScheduleOptions, Parameters<typeof analyze>[1]?][] = [
  ["1f1b", { workers: 16, microBatches: 64 }],
  ["interleaved", { workers: 16, microBatches: 64 }],
  ["chimera", { workers: 8, microBatches: 16, pipelines: 2, scale: "doubling" }],
  ["chimera", { workers: 4, microBatches: 8, scale: "halving" }],
  ["dualpipe", { workers: 8, microBatches: 20 }],
  ["hanayo", { workers: 4, microBatches: 4, waves: 2 }],
  ["zb-h2", { workers: 4, microBatches: 8 }, { forward: 1, input: 1.25, weight: 0.6, send: 0.3 }],
  ["message-driven", { workers: 4, microBatches: 6 }],
  ["gpipe", { workers: 1, microBatches: 1 }],
];

function analysisOf([name, options, costs]: typeof DRAWN[number]) {
  return analyze(createSchedule(name, options), costs);
}

Deno.test("the timeline of 1F1B is drawn as it runs", () => {
  const analysis = analyze(createSchedule("1f1b", { workers: 3, microBatches: 3 }));
  assert.equal(
    formatGrid(analysis),
    `time      0         5         10
worker 0  F0F1F2········B0──··B1──··B2──  idle 6, peak 3
worker 1  ··F0F1····B0──F2B1──··B2──····  idle 6, peak 2
worker 2  ····F0B0──F1B1──F2B2──········  idle 6, peak 1
`,
  );
});

Deno.test("the rows of a timeline line up within the columns, and show every action", () => {
  for (const one of DRAWN) {
    const analysis = analysisOf(one);
    for (const columns of [60, 120, 400]) {
      const lines = formatGrid(analysis, { columns }).trimEnd().split("\n");
      for (const line of lines) assert.ok([...line].length <= columns, `${one[0]}: ${line}`);
      const blocks = lines.join("\n").split("\n\n").map((block) => block.split("\n"));
      for (const [head, ...rows] of blocks) {
        assert.match(head!, /^time /);
        assert.equal(rows.length, analysis.schedule.workers);
        const widths = rows.map((row) => [...row.replace(/ {2}idle .*$/, "")].length);
        assert.equal(new Set(widths).size, 1, `${one[0]}: rows of unlike length`);
      }
      // Blocks put together again: as many actions as there are in the lists.
      analysis.schedule.lists.forEach((list, worker) => {
        const row = blocks.map(([, ...rows]) => rows[worker]!).join("");
        const names = row.match(/[FBIW]\d/g) ?? [];
        const cut = blocks.length - 1; // a name may go on in the next block
        assert.ok(
          names.length >= list.length - cut,
          `${one[0]}: ${names.length} of ${list.length}`,
        );
      });
    }
  }
});

Deno.test("colours change nothing but colours", () => {
  for (const one of DRAWN) {
    const analysis = analysisOf(one);
    const plain = formatGrid(analysis).replaceAll("·", " ");
    // deno-lint-ignore no-control-regex -- ANSI codes begin with one
    const colored = formatGrid(analysis, { color: true }).replace(/\x1b\[[\d;]*m/g, "");
    assert.equal(colored, plain);
  }
});

Deno.test("a timeline needs forty columns", () => {
  const analysis = analysisOf(DRAWN[7]!);
  for (const columns of [39, NaN]) {
    refuses(
      () => formatGrid(analysis, { columns }),
      `Cannot draw a timeline: the columns must be at least 40, received ${columns}`,
    );
  }
});

interface Box {
  readonly content: string;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** The boxes of all texts of a drawing, by an estimate of their width that is on the safe side. */
function textBoxes(svg: string): Box[] {
  const boxes: Box[] = [];
  let [dx, dy] = [0, 0];
  for (const line of svg.split("\n")) {
    const shift = /<g transform="translate\((\S+) (\S+)\)">/.exec(line);
    if (shift !== null) [dx, dy] = [Number(shift[1]), Number(shift[2])];
    if (line === "</g>") [dx, dy] = [0, 0];
    for (
      const [, attributes = "", content = ""] of line.matchAll(/<text ([^>]*)>([^<]*)<\/text>/g)
    ) {
      const get = (name: string) => new RegExp(`${name}="([^"]*)"`).exec(attributes)?.[1];
      const size = Number(get("font-size") ?? 11);
      const width = content.length * size * (get("font-weight") === "bold" ? 0.6 : 0.54);
      const anchor = get("text-anchor") ?? "start";
      const x = Number(/(?:^| )x="([^"]*)"/.exec(attributes)?.[1]) + dx;
      const left = x - (anchor === "middle" ? width / 2 : anchor === "end" ? width : 0);
      const y = Number(get("y")) + dy;
      const [top, bottom] = [y - size * 0.4, y + size * 0.4];
      boxes.push({ content, left, right: left + width, top, bottom });
    }
  }
  return boxes;
}

Deno.test("no text of a drawing lies over another or over the edge", () => {
  for (const one of DRAWN) {
    const svg = formatSvg(analysisOf(one));
    const width = Number(/ width="([\d.]+)"/.exec(svg)![1]);
    const boxes = textBoxes(svg).sort((a, b) => a.top - b.top || a.left - b.left);
    assert.ok(boxes.length > 10);
    boxes.forEach((box, i) => {
      assert.ok(box.left >= 0 && box.right <= width, `${one[0]}: "${box.content}" is cut off`);
      for (const other of boxes.slice(i + 1)) {
        if (other.top >= box.bottom) break;
        const isApart = other.left >= box.right || other.right <= box.left;
        assert.ok(isApart, `${one[0]}: "${box.content}" lies over "${other.content}"`);
      }
    });
  }
});

Deno.test("a drawing has a cell for every action, inside its row and the timeline", () => {
  for (const one of DRAWN) {
    const analysis = analysisOf(one);
    const svg = formatSvg(analysis);
    const cells = [...svg.matchAll(/<rect x="([^"]*)" [^>]*width="([^"]*)"[^>]*stroke="#ffffff"/g)];
    const parts = analysis.schedule.lists.flatMap((list) => [...list])
      .reduce((sum, { overlap }) => sum + (overlap === undefined ? 1 : 2), 0);
    assert.equal(cells.length, parts, one[0]);
  }
});

Deno.test("a drawing and each of its boxes and curves have a name", () => {
  for (const one of DRAWN) {
    const analysis = analysisOf(one), { schedule } = analysis;
    const svg = formatSvg(analysis);
    assert.match(
      svg,
      new RegExp(`^<svg [^>]*role="graphics-document">\\n<title>${schedule.name}: `),
    );
    const names = [...svg.matchAll(/<g role="graphics-symbol"><title>([^<]+)<\/title><rect /g)];
    assert.equal(names.length, svg.match(/class="edge"/g)!.length);
    const replicas = Math.max(...schedule.replicaOf) + 1;
    const pattern =
      /^\d+[FBIW]\d+(\+\d+|\.[01])?: worker \d+, time [\d.]+ to [\d.]+(, replica \d+)?$/;
    for (const [, name] of names) {
      assert.equal(pattern.exec(name!)?.[2] !== undefined, replicas > 1, name);
    }
    assert.equal(svg.match(/<title>worker \d+: at most /g)!.length, schedule.workers);
  }
});

Deno.test("no swatch of a legend has the colour of another", () => {
  for (const one of DRAWN) {
    const swatches = [
      ...formatSvg(analysisOf(one)).matchAll(/<rect [^>]*height="13" fill="(#\w+)"/g),
    ];
    assert.ok(swatches.length > 1);
    assert.equal(new Set(swatches.map(([, fill]) => fill)).size, swatches.length, one[0]);
  }
});

Deno.test("on a dark screen paper, words and lines are others, and as legible", () => {
  const svg = formatSvg(analysisOf(DRAWN[0]!)),
    [, dark] = /@media \(prefers-color-scheme: dark\) (.*)<\/style>/.exec(svg)!;
  const of = (what: string) =>
    new RegExp(`troupe-schedule${what} { \\w+: (#\\w{6})`).exec(dark!)![1]!;
  assert.ok(contrast(of(""), of(" .paper")) >= 7);
  assert.ok(contrast(of(" .axis"), of(" .paper")) >= 4.5);
  for (const name of ["paper", "edge", "axis", "rule"]) {
    assert.match(svg, new RegExp(`class="${name}"`));
  }
});

function channels(hex: string): number[] {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
}

function luminance(hex: string): number {
  const [r, g, b] = channels(hex);
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
}

function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high! + 0.05) / (low! + 0.05);
}

Deno.test("text is legible on every colour, and every colour on white", () => {
  for (const kind of ["F", "I", "B", "W"] as const) {
    for (let stage = 0; stage < 16; stage++) {
      for (let replica = 0; replica < 4; replica++) {
        const { fill, text } = inkOf(kind, { stage, stages: 16, replica, replicas: 4 });
        assert.ok(contrast(fill, text) >= 4.5, `${kind} ${stage} ${replica}: ${fill} ${text}`);
        assert.ok(contrast(fill, "#ffffff") >= 1.15, `${fill} is lost on white`);
      }
    }
  }
});

Deno.test("more actions than a picture can hold are refused", () => {
  const analysis = analyze(createSchedule("1f1b", { workers: 101, microBatches: 1000 }));
  refuses(
    () => formatSvg(analysis),
    /Cannot draw the schedule 1f1b: it must have at most 200000 actions, received 202000/,
  );
});

Deno.test("axes have round ticks", () => {
  assert.deepEqual(ticks(10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(237, 10), [0, 50, 100, 150, 200]);
  assert.deepEqual(ticks(0.3, 3).map(shortNumber), ["0", "0.1", "0.2", "0.3"]);
  assert.deepEqual(ticks(0, 5), [0]);
});
