/**
 * One side of the playground: its controls, its web worker and its timeline.
 *
 * @module
 */

import { findSchedule, scheduleNames } from "../../../schedules/mod.ts";
import { shortNumber } from "../../../schedules/pictures/grid.ts";
import { byId, element, fill, setText } from "../../dashboard/page/elements.js";
import { CAUSES, type Picture, readTrace, type Spans } from "./play.ts";
import {
  CHOICES,
  concerns,
  type NumberField,
  OPTIONS,
  OWN,
  type Settings,
  type Side,
  SWITCHES,
  trainCommand,
} from "./settings.ts";
import { type Look, openTimeline } from "./timeline.ts";
import type { Answer, Request } from "./worker.ts";

/** A computation that takes longer is ended when the settings change. */
const PATIENCE_MS = 250;

let workerUrl = "";

/** Starts a web worker from the text in the page. */
function startWorker(): Worker {
  const script = byId("worker").textContent ?? "";
  workerUrl ||= URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  return new Worker(workerUrl);
}

/**
 * Opens a web worker that computes only the newest request. Waiting requests are dropped, and a long
 * computation, such as a search, is ended.
 */
function openComputer(answered: (answer: Answer) => void) {
  let worker: Worker | undefined, running: Request | undefined, next: Request | undefined;
  let began = 0, id = 0;
  const start = (request: Request) => {
    if (!worker) {
      worker = startWorker();
      worker.onmessage = ({ data }: MessageEvent<Answer>) => {
        if (data.id !== running?.id) return;
        if (data.isLast) running = undefined;
        if (!next) answered(data);
        if (running || !next) return;
        const newest = next;
        next = undefined;
        start(newest);
      };
    }
    [running, began] = [request, performance.now()];
    worker.postMessage(request);
  };
  const compute = (request: Omit<Request, "id">) => {
    const numbered = { ...request, id: ++id };
    if (running && performance.now() - began > PATIENCE_MS) {
      worker?.terminate();
      worker = running = undefined;
    }
    if (running) next = numbered;
    else start(numbered);
  };
  return { compute, isBusy: () => running !== undefined };
}

/** Creates the control of a number: a slider, and a field with the value. */
export function numberControl(
  name: string,
  { label, least, most, step, otherwise, help }: NumberField,
  value: number | undefined,
  changed: (value: number | undefined) => void,
): HTMLElement {
  const limits = { min: least, max: most, step };
  const slider = element("input", { type: "range", ...limits, title: help, "aria-label": label });
  const field = element("input", { type: "number", id: name, ...limits, step: "any", title: help });
  const [range, number] = [slider as HTMLInputElement, field as HTMLInputElement];
  const show = (to: number | undefined) => {
    range.value = String(to ?? least);
    number.value = to === undefined ? "" : String(to);
    number.placeholder = otherwise === undefined ? "auto" : String(otherwise);
  };
  show(value);
  range.addEventListener("input", () => {
    const to = Number(range.value);
    show(to);
    changed(to);
  });
  number.addEventListener("input", () => {
    const to = number.value === "" ? otherwise : Number(number.value);
    const isFit = to === undefined || to >= least && to <= most;
    number.setAttribute("aria-invalid", String(!isFit));
    if (!isFit) return void number.reportValidity();
    range.value = String(to ?? least);
    changed(to);
  });
  return element("div", { class: "field" }, element("label", { for: name }, label), slider, field);
}

const download = (name: string, blob: Blob) => {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
};

/** Functions of the page that a side calls. */
interface PageOfPanel {
  settings(): Settings;
  /** Changes the side; its controls are made again unless one of them has changed it. */
  change(side: Side, isOfControl?: boolean): void;
  look(): Look;
  /** Called when the picture has changed. */
  shown(): void;
}

const NAMES = ["A", "B"];

/** Creates the elements of a side. */
function createPanel(letter: string, id: (name: string) => string) {
  const pick = element("select", { id: id("schedule"), "aria-label": `Schedule ${letter}` });
  for (const name of scheduleNames()) pick.append(element("option", { value: name }, name));
  pick.append(element("option", { value: OWN }, "own lists (CSV or trace)"));
  const options = element("div", { class: "options" }), about = element("p", { class: "summary" });
  const error = element("p", { class: "error", role: "alert", hidden: true });
  const words = element("p", { class: "chosen", role: "status" });
  const timeline = { role: "application", "aria-roledescription": "timeline", tabindex: 0 };
  const place = element("div", { class: "timeline", ...timeline, "aria-describedby": "keys" });
  place.append(element("canvas"));
  const list = element("div", { class: "words", tabindex: 0, role: "region" });
  list.setAttribute("aria-label", `Actions of schedule ${letter}`);
  const details = element("details", {}, element("summary", {}, "The same in words"), list);
  const command = element("code", { class: "command" });
  const files = element("div", { class: "tools files" });
  const zoom = element("div", { class: "tools", role: "group", "aria-label": "Zoom" });
  const panel = element(
    "section",
    { class: "card panel", id: id("panel"), "aria-label": `Schedule ${letter}` },
    element("div", { class: "heading" }, element("div", { class: "pick" }, pick), zoom),
    ...[options, about, error, place, words, files, command, details],
  );
  byId("panels").append(panel);
  const chosen = pick as HTMLSelectElement;
  return {
    panel,
    pick: chosen,
    options,
    about,
    error,
    place,
    words,
    list,
    details,
    command,
    files,
    zoom,
  };
}

/** Takes files that are dropped on a panel. */
function acceptFiles(panel: HTMLElement, read: (file: Blob) => void): void {
  panel.addEventListener("dragover", (event) => {
    event.preventDefault();
    panel.classList.add("over");
  });
  panel.addEventListener("dragleave", () => panel.classList.remove("over"));
  panel.addEventListener("drop", (event) => {
    event.preventDefault();
    panel.classList.remove("over");
    const [file] = event.dataTransfer?.files ?? [];
    if (file) read(file);
  });
}

/** Limit of characters of own lists, with which the page and its link are still usable. */
const LISTS_MAX = 2 ** 21;

/** Reads own lists or a trace as a side. */
async function readSide({ timed: _, ...now }: Side, file: Blob): Promise<Side> {
  const text = await file.text(), own: Side = { ...now, schedule: OWN, switches: {} };
  const read = /^\s*[[{]/.test(text) ? readTrace(text) : { csv: text };
  if (read.csv.length > LISTS_MAX) {
    const received = read.csv.length.toLocaleString("en-US");
    throw new RangeError(
      `Cannot show the lists: they must have at most 2 MiB of text, received ${received} characters`,
    );
  }
  return { ...own, ...read };
}

/** Opens a side. */
export function openPanel(index: number, page: PageOfPanel) {
  const letter = NAMES[index]!, id = (name: string) => `${letter.toLowerCase()}-${name}`;
  const made = createPanel(letter, id), { panel, pick, about, error, details, command } = made;
  const timeline = openTimeline(made.place, made.words);
  let picture: Picture | undefined, worded: Picture | undefined;
  const side = () => page.settings().sides[index]!;
  const refuse = (message?: string) => {
    error.hidden = message === undefined;
    setText(error, message ?? "");
  };
  const { compute, isBusy } = openComputer((answer) => {
    refuse(answer.error);
    picture = answer.picture;
    panel.classList.toggle("stale", !picture);
    setText(about, picture ? `${describeSide(side())} ${summaryOf(picture)}` : "");
    if (picture) {
      made.place.setAttribute("aria-label", `Timeline of ${picture.name}: ${summaryOf(picture)}`);
    }
    page.shown();
  });
  const read = (file: Blob) =>
    void readSide(side(), file).then(page.change, (cause) => refuse(String(cause.message)));
  const showWords = () => {
    if (details.hasAttribute("open")) fill(made.list, inWords(timeline.spans()));
  };
  details.addEventListener("toggle", showWords);
  pick.addEventListener("change", () => {
    const { timed: _, ...now } = side();
    page.change({ ...now, schedule: pick.value });
  });
  acceptFiles(panel, read);
  addButtons(made, letter, timeline, {
    file(format) {
      // Its own web worker, so that the picture is finished, too.
      const worker = startWorker(), name = `${side().schedule}.${format}`;
      worker.onmessage = ({ data: { file, error } }: MessageEvent<Answer>) => {
        worker.terminate();
        if (file === undefined) refuse(error);
        else download(name, new Blob([file], { type: `text/${format}` }));
      };
      worker.postMessage({ id: 0, settings: page.settings(), side: index, format });
    },
    png: (blob) => download(`${side().schedule}.png`, blob),
  });
  return {
    element: panel,
    isBusy,
    /** The picture that is shown. */
    picture: () => picture,
    /** Computes the side again. */
    update() {
      setText(command, trainCommand(page.settings(), index));
      compute({ settings: page.settings(), side: index });
    },
    /** Shows controls for the options of the schedule. */
    rebuild() {
      pick.value = side().schedule;
      made.options.replaceChildren(...controlsOf(side, id, page.change, read));
    },
    /** Draws the picture. */
    draw(done?: (time: number) => void) {
      timeline.show(picture, page.look(), done);
      if (picture !== worded) showWords();
      worded = picture;
    },
    restyle: timeline.restyle,
  };
}

/** Adds the buttons that zoom and save. */
function addButtons(
  { zoom, files, command }: ReturnType<typeof createPanel>,
  letter: string,
  { canvas, zoomIn, zoomOut, zoomAll }: ReturnType<typeof openTimeline>,
  save: { file(format: "svg" | "csv"): void; png(blob: Blob): void },
): void {
  const button = (text: string, name: string, act: () => void) => {
    const made = element("button", { type: "button", "aria-label": `${name}, schedule ${letter}` });
    made.append(text);
    made.addEventListener("click", act);
    return made;
  };
  zoom.append(
    button("−", "Zoom out", zoomOut),
    button("Whole", "Whole step", zoomAll),
    button("+", "Zoom in", zoomIn),
  );
  files.append(
    button("SVG", "Save as SVG", () => save.file("svg")),
    button("PNG", "Save as PNG", () => canvas.toBlob((blob) => blob && save.png(blob))),
    button("CSV", "Save lists as CSV", () => save.file("csv")),
    button(
      "Copy command",
      "Copy command",
      () => void navigator.clipboard?.writeText(command.textContent ?? ""),
    ),
  );
}

function controlsOf(
  now: () => Side,
  id: (name: string) => string,
  change: PageOfPanel["change"],
  read: (file: Blob) => void,
): HTMLElement[] {
  const side = now();
  const numbers = Object.entries(OPTIONS).filter(([name]) => concerns(side, name))
    .map(([name, field]) =>
      numberControl(id(name), field, side.numbers[name as keyof typeof OPTIONS], (value) => {
        change({ ...now(), numbers: { ...now().numbers, [name]: value } }, true);
      })
    );
  const choices = Object.entries(CHOICES).filter(([name]) => concerns(side, name))
    .map(([name, { label, words }]) => {
      const select = element("select", { id: id(name) }) as HTMLSelectElement;
      select.append(...words.map((word) => element("option", { value: word }, word)));
      select.value = side.words[name as keyof typeof CHOICES] ?? words[0];
      select.addEventListener("change", () => {
        change({ ...now(), words: { ...now().words, [name]: select.value } }, true);
      });
      return element("div", { class: "field" }, element("label", { for: id(name) }, label), select);
    });
  const isListed = side.schedule !== "message-driven" && !side.timed;
  const switches = (isListed ? Object.entries(SWITCHES) : []).map(([name, label]) => {
    const box = element("input", { type: "checkbox", id: id(name) }) as HTMLInputElement;
    box.checked = side.switches[name as keyof typeof SWITCHES] ?? false;
    box.addEventListener("change", () => {
      const { [name as keyof typeof SWITCHES]: _, ...others } = now().switches;
      change({ ...now(), switches: box.checked ? { ...others, [name]: true } : others });
    });
    return element("div", { class: "field" }, element("label", { class: "switch" }, box, label));
  });
  const own = side.schedule === OWN ? ownLists(now, id, change, read) : [];
  return [...numbers, ...choices, ...switches, ...own];
}

/** The controls of own lists: a text, or a file. */
function ownLists(
  now: () => Side,
  id: (name: string) => string,
  change: PageOfPanel["change"],
  read: (file: Blob) => void,
): HTMLElement[] {
  const text = element("textarea", { id: id("lists"), spellcheck: "false" }) as HTMLTextAreaElement;
  text.value = now().csv ?? "";
  text.addEventListener("input", () => {
    const { timed: _, ...untimed } = now();
    change({ ...untimed, csv: text.value }, true);
  });
  const file = element("input", { type: "file", id: id("file"), accept: ".csv,.json,.txt" });
  file.addEventListener("change", () => {
    const [one] = (file as HTMLInputElement).files ?? [];
    if (one) read(one);
  });
  const label = (name: string, words: string) => element("label", { for: id(name) }, words);
  return [
    element(
      "div",
      { class: "own" },
      label("lists", "Lists: a row for each worker, Troupe's or PyTorch's"),
      text,
    ),
    element("div", { class: "own" }, label("file", "Or a file: CSV, or a trace of a run"), file),
  ];
}

/** Describes the schedule of a side. */
const describeSide = ({ schedule, timed }: Side) =>
  schedule !== OWN
    ? `${findSchedule(schedule).summary}.`
    : timed
    ? "The last step of a trace, in milliseconds."
    : "Your own lists.";

/** Describes a picture in a sentence. */
export function summaryOf({ makespan, bubbleRatio, critical: { counts }, notes }: Picture): string {
  const count = (kind: string, name: string) =>
    counts[kind] ? [`${counts[kind]} ${name}${counts[kind] > 1 ? "s" : ""}`] : [];
  const path = [
    ...[...count("F", "forward"), ...count("B", "backward"), ...count("I", "input backward")],
    ...[...count("W", "weight backward"), ...count("R", "recomputation")],
    ...count("message", "message"),
  ];
  const bubble = Number((100 * bubbleRatio).toFixed(1));
  return [
    `Time ${shortNumber(makespan)}, bubbles ${bubble} %, critical path of ${path.join(", ")}.`,
    ...notes.map((note) => `${note}.`),
  ].join(" ");
}

/** Maximum number of actions in the description. */
const WORDS_MAX = 500;

/** Lists the actions and bubbles of each worker. */
function inWords(spans: readonly Spans[]): HTMLElement[] {
  return spans.map(({ boxes, gaps }, worker) => {
    const all = [
      ...boxes.map(({ name, from, to }) => ({ name, from, to })),
      ...gaps.map(({ cause, from, to }) => ({ name: `bubble (${CAUSES[cause]![0]})`, from, to })),
    ].sort((a, b) => a.from - b.from);
    const items = all.slice(0, WORDS_MAX).map(({ name, from, to }) =>
      element(
        "li",
        { "data-from": from, "data-to": to, "data-name": name },
        `${name} ${shortNumber(from)}–${shortNumber(to)}`,
      )
    );
    const more = all.length > WORDS_MAX
      ? [element("li", {}, `and ${all.length - WORDS_MAX} more`)]
      : [];
    const list = element("ol", { "data-worker": worker }, ...items, ...more);
    return element("section", {}, element("h3", {}, `worker ${worker}`), list);
  });
}
