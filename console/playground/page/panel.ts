/**
 * One side of the playground: its controls, its web worker and its timeline.
 *
 * @module
 */

import { assertInput } from "../../../schedules/errors.ts";
import { findSchedule, scheduleNames } from "../../../schedules/mod.ts";
import { shortNumber } from "../../../schedules/pictures/grid.ts";
import { byId, element, fill, listWorkers, setText } from "../../dashboard/page/elements.js";
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

/** Saves a side as a file by its own web worker, so that the picture is finished, too. */
function saveSide(request: Omit<Request, "id">, refuse: (message?: string) => void): void {
  const { settings, side, format } = request, worker = startWorker();
  worker.onmessage = ({ data: { file, error } }: MessageEvent<Answer>) => {
    worker.terminate();
    if (file === undefined) return refuse(error);
    const name = `${settings.sides[side]!.schedule}.${format}`;
    download(name, new Blob([file], { type: `text/${format}` }));
  };
  worker.postMessage({ ...request, id: 0 });
}

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

/** Creates the elements of a side from the template of the page. */
function createPanel(index: number) {
  const letter = NAMES[index]!, id = (name: string) => `${letter.toLowerCase()}-${name}`;
  const { content } = byId("side") as HTMLTemplateElement;
  const panel = content.firstElementChild!.cloneNode(true) as HTMLElement;
  for (const one of [panel, ...panel.querySelectorAll("*")]) {
    if (one.id) one.id = id(one.id);
    if (one.ariaLabel) one.ariaLabel = one.ariaLabel.replace("{side}", letter);
  }
  byId("panels").append(panel);
  const find = (selector: string) => panel.querySelector<HTMLElement>(selector)!;
  const pick = find("select") as HTMLSelectElement;
  pick.prepend(...scheduleNames().map((name) => new Option(name)));
  return { panel, id, find, pick };
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
  const received = `${read.csv.length.toLocaleString("en-US")} characters`;
  const must = "they must have at most 2 MiB of text";
  assertInput(read.csv.length <= LISTS_MAX, "show the lists", must, received);
  return { ...own, ...read };
}

/** Opens a side. */
export function openPanel(index: number, page: PageOfPanel) {
  const { panel, id, find, pick } = createPanel(index), about = find(".summary");
  const error = find(".error"), details = find("details"), command = find(".command");
  const place = find(".timeline"), timeline = openTimeline(place, find(".chosen"));
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
      place.setAttribute("aria-label", `Timeline of ${picture.name}: ${summaryOf(picture)}`);
    }
    page.shown();
  });
  const read = (file: Blob) =>
    void readSide(side(), file).then(page.change, (cause) => refuse(String(cause.message)));
  const showWords = () => {
    if (details.hasAttribute("open")) fill(find(".words"), inWords(timeline.spans()));
  };
  details.addEventListener("toggle", showWords);
  pick.addEventListener("change", () => {
    const { timed: _, ...now } = side();
    page.change({ ...now, schedule: pick.value });
  });
  acceptFiles(panel, read);
  const save = (format: "svg" | "csv") => () =>
    saveSide({ settings: page.settings(), side: index, format }, refuse);
  const savePng = (blob: Blob | null) => blob && download(`${side().schedule}.png`, blob);
  const buttons: Readonly<Record<string, () => void>> = {
    "zoom-out": timeline.zoomOut,
    whole: timeline.zoomAll,
    "zoom-in": timeline.zoomIn,
    svg: save("svg"),
    png: () => timeline.canvas.toBlob(savePng),
    csv: save("csv"),
    copy: () => void navigator.clipboard?.writeText(command.textContent ?? ""),
  };
  for (const [name, act] of Object.entries(buttons)) {
    find(`.${name}`).addEventListener("click", act);
  }
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
      find(".options").replaceChildren(...controlsOf(side, id, page.change, read));
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

/** Lists the actions and bubbles of each worker. */
const inWords = (spans: readonly Spans[]): HTMLElement[] =>
  listWorkers(
    spans.map(({ boxes, gaps }) => [
      ...boxes,
      ...gaps.map(({ cause, from, to }) => ({ name: `bubble (${CAUSES[cause]![0]})`, from, to })),
    ]),
    ({ from, to }) => `${shortNumber(from)}–${shortNumber(to)}`,
  );
