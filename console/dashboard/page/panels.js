/**
 * Panels of the page: status, figures, workers, actors, events and configuration.
 *
 * @module
 */

import {
  byId,
  bytes,
  duration,
  element,
  fill,
  NONE,
  percent,
  setText,
  short,
  tableParts,
  whole,
} from "./elements.js";

/** @import { State } from "./state.js" */
/** @import { TraceView, WorkerStep, EventView } from "../view.ts" */

/** @type {Readonly<Record<string, string>>} */
const STATUS = {
  starting: "Starting",
  running: "Running",
  finished: "Finished",
  interrupted: "Interrupted",
  failed: "Failed",
  gone: "Stopped without an end",
};

/**
 * Shows the head of the page.
 *
 * @param {State} state
 * @param {boolean} isConnected
 */
export function showStatus({ run, status }, isConnected) {
  const { status: word, step, steps, note } = status;
  const isOver = !["starting", "running"].includes(word), isLost = !isConnected && !isOver;
  const pill = byId("status");
  pill.dataset.status = isLost ? "lost" : word;
  document.body.classList.toggle("over", isOver || isLost);
  const at = steps > 0 ? ` · step ${whole(step)} of ${whole(steps)}` : "";
  setText(pill, isLost ? `No connection${at}` : `${STATUS[word] ?? word}${at}`);
  const progress = /** @type {HTMLProgressElement} */ (byId("progress"));
  progress.max = Math.max(1, steps);
  progress.value = step;
  setText(byId("title"), run?.title ?? "…");
  document.title = run ? `${run.title} · ${STATUS[word] ?? word} · Troupe` : "Troupe";
  const place = byId("note"), again = run?.command;
  const lines = [
    ...note ? [element("span", {}, note)] : [],
    ...isLost
      ? ["The program does not answer: it has ended or is stopped. Its last state is below."]
      : [],
    ...again && !isConnected && (isOver || isLost)
      ? [element("span", {}, "See it again with ", element("code", {}, again))]
      : [],
  ];
  place.hidden = lines.length === 0;
  place.dataset.status = word;
  fill(place, lines.map((line) => element("span", { class: "line" }, line)));
}

/**
 * Shows the current figures.
 *
 * @param {State} state
 */
export function showFigures({ run, metrics, evaluations, status, traces, workers }) {
  const last = metrics.at(-1), held = evaluations.at(-1), trace = traces.at(-1);
  const perplexity = run?.lossUnit && held ? `perplexity ${short(held.perplexity)} ` : "";
  const left = status.steps - status.step;
  const first = metrics.at(-20) ?? metrics[0];
  const perStep = first && last && first !== last
    ? (last.seconds - first.seconds) / (last.step - first.step)
    : undefined;
  const memory = workers.reduce((sum, { memoryBytes = NaN }) => sum + memoryBytes, 0);
  /** @type {readonly (readonly [name: string, value: string, more?: string])[]} */
  const figures = [
    ["Loss", short(last?.loss), last?.type === "skip" ? "skipped: gradients overflowed" : ""],
    [
      "Held-out loss",
      short(held?.evalLoss),
      held ? `${perplexity}at step ${whole(held.step)}` : "",
    ],
    ...Object.entries(last?.metrics ?? {}).map(([name, value]) => /** @type {const} */ ([
      capital(name),
      short(value),
      held?.metrics ? `held out ${short(held.metrics[name])} at step ${whole(held.step)}` : "",
    ])),
    [`${capital(run?.unit)} a second`, whole(last?.tokensPerSecond)],
    ["Step time", duration(perStep === undefined ? undefined : 1000 * perStep)],
    [
      "Bubble",
      trace ? percent(bubbleOf(trace)) : NONE,
      trace ? `of step ${whole(trace.step)}` : "",
    ],
    ["Gradient norm", short(last?.gradNorm)],
    ["Memory, all workers", bytes(memory > 0 ? memory : undefined)],
    status.status === "running"
      ? ["ETA", duration(perStep === undefined ? undefined : 1000 * perStep * left)]
      : ["Elapsed", duration(last ? 1000 * last.seconds : undefined)],
  ];
  fill(
    byId("figures"),
    figures.map(([name, value, more = ""]) => {
      const notes = more ? [element("small", {}, more)] : [];
      const pair = [element("dt", {}, name), element("dd", {}, value, ...notes)];
      return element("div", { class: "figure" }, ...pair);
    }),
  );
}

/**
 * Returns the share of idle time of all workers in a step.
 *
 * @param {TraceView} trace
 */
function bubbleOf({ workers, length }) {
  const used = workers.reduce((sum, { busy, update }) => sum + busy + update, 0);
  return workers.length > 0 && length > 0 ? 1 - used / (workers.length * length) : undefined;
}

/**
 * Shows the workers in the current step.
 *
 * @param {State} state
 * @param {TraceView | undefined} trace
 */
export function showWorkers({ run, workers, metrics }, trace) {
  setText(byId("workers-step"), trace ? `in step ${whole(trace.step)}` : "");
  if (!run) return;
  const row = metrics.findLast(({ step }) => step === trace?.step) ?? metrics.at(-1);
  const forwards = trace?.workers.reduce((sum, worker) => sum + worker.forwards, 0) ?? 0;
  const speed = `${capital(run.unit)}/s`;
  const heads = ["Worker", "Stages", "Busy", "Longest wait", "Peak mailbox", "Memory", speed];
  const rows = run.workers.map(({ replica, stages }, i) => {
    const step = trace?.workers[i], { memoryBytes, restarts = 0 } = workers[i] ?? {};
    const share = step && forwards > 0 ? step.forwards * run.workers.length / forwards : NaN;
    const numbers = [
      whole(step?.mailbox),
      bytes(memoryBytes),
      whole(share * (row?.tokensPerSecond ?? NaN)),
      whole(restarts),
    ];
    return element(
      "tr",
      { class: restarts > 0 ? "restarted" : undefined },
      element("th", { scope: "row" }, workerName(i)),
      element("td", {}, stages.join(", "), ...replicaNote(replica, run.workers)),
      element("td", {}, ...busyBar(step, trace)),
      element("td", {}, longestWait(step)),
      ...numbers.map((number) => element("td", { class: "number" }, number)),
    );
  });
  const head = [...heads, "Restarts"].map((text) => element("th", { scope: "col" }, text));
  fill(byId("workers"), [element("table", {}, ...tableParts(head, rows))]);
}

/** @param {string} [unit] */
const capital = (unit = "predictions") => unit.slice(0, 1).toUpperCase() + unit.slice(1);

/** @param {number} worker */
const workerName = (worker) => `worker ${worker}`;

/**
 * @param {number} replica
 * @param {readonly { replica: number }[]} workers
 */
const replicaNote = (replica, workers) =>
  workers.some((other) => other.replica > 0) ? [element("small", {}, ` replica ${replica}`)] : [];

/**
 * @param {WorkerStep | undefined} step
 * @param {TraceView | undefined} trace
 */
function busyBar(step, trace) {
  if (!step || !trace || trace.length === 0) return [NONE];
  const busy = step.busy / trace.length, update = step.update / trace.length;
  const bar = element("meter", { min: 0, max: 1, value: busy.toFixed(3), "aria-hidden": "true" });
  const more = update >= 0.005 ? ` and ${percent(update)} update` : "";
  return [bar, ` ${percent(busy)}`, element("small", {}, more)];
}

/** @param {WorkerStep | undefined} step */
function longestWait(step) {
  /** @type {Map<string, number>} */
  const waits = new Map();
  for (const [from, to, cause] of step?.gaps ?? []) {
    if (cause) waits.set(reasonOf(cause), (waits.get(reasonOf(cause)) ?? 0) + to - from);
  }
  const [longest] = [...waits].sort(([, a], [, b]) => b - a);
  return longest ? `${longest[0]}, ${duration(longest[1])}` : NONE;
}

/** Returns a cause without its action, such as `worker 1`. */
const reasonOf = (/** @type {string} */ cause) =>
  cause.replace(/: [^:]*$/, "").replace(/^waits for (the )?/, "");

/**
 * Shows the tree of actors.
 *
 * @param {State} state
 */
export function showActors({ run, workers, events, status }) {
  if (!run) return;
  const replicas = Map.groupBy(
    run.workers.map((facts, i) => ({ ...facts, i })),
    ({ replica }) => replica,
  );
  const isOver = !["starting", "running"].includes(status.status);
  const now = isOver ? "ended" : status.status;
  const dot = () => element("span", { class: isOver ? "dot over" : "dot", "aria-hidden": "true" });
  const leaf = (/** @type {number} */ i, /** @type {readonly number[]} */ stages) => {
    const restarts = workers[i]?.restarts ?? 0;
    const lost = events.findLast(({ kind, worker }) => kind === "failure" && worker === i);
    const times = restarts === 1 ? "once" : `${restarts} times`;
    const why = lost ? `restarted ${times}, last in step ${whole(lost.step)}` : "";
    return element(
      "li",
      { "data-worker": i, class: restarts > 0 ? "restarted" : undefined },
      dot(),
      `${workerName(i)} `,
      element("small", {}, `stage${stages.length === 1 ? "" : "s"} ${stages.join(", ")} · ${now}`),
      ...why ? [element("strong", {}, why)] : [],
    );
  };
  const leaves = (/** @type {readonly { i: number, stages: readonly number[] }[]} */ some) =>
    element("ul", {}, ...some.map(({ i, stages }) => leaf(i, stages)));
  const branches = Array.from(
    replicas,
    ([replica, some]) => element("li", {}, `data-parallel replica ${replica}`, leaves(some)),
  );
  const [only = []] = replicas.values();
  const below = branches.length === 1 ? leaves(only) : element("ul", {}, ...branches);
  fill(byId("actors"), [
    element(
      "ul",
      { class: "tree" },
      element("li", {}, dot(), "supervisor ", element("small", {}, now), below),
    ),
  ]);
}

/** @type {Readonly<Record<EventView["kind"], string>>} */
const EVENTS = {
  failure: "Failure ·",
  joined: "Joined ·",
  checkpoint: "Checkpoint ·",
  resumed: "Resumed after",
};

const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

/**
 * Shows failures, joined workers, checkpoints and resumptions, the newest first.
 *
 * @param {State} state
 */
export function showEvents({ events }) {
  const rows = events.toReversed().slice(0, 50).map((/** @type {EventView} */ event) => {
    const { kind, step, time, text } = event;
    const date = dateOf(time), heading = `${EVENTS[kind]} step ${whole(step)}`;
    return element(
      "li",
      { class: kind },
      element("time", { datetime: date?.toISOString() }, date ? CLOCK.format(date) : NONE),
      element("span", {}, element("b", {}, heading), element("span", { class: "text" }, text)),
    );
  });
  fill(byId("events"), rows.length > 0 ? rows : [element("li", { class: "none" }, "None so far.")]);
}

/** @param {number} time */
const dateOf = (time) =>
  Number.isFinite(time) && Math.abs(time) < 8.64e15 ? new Date(time) : undefined;

/**
 * Shows the configuration of the run.
 *
 * @param {State} state
 */
export function showFacts({ run }) {
  if (!run) return;
  fill(
    byId("facts"),
    run.tables.map(({ title, rows }) => {
      const pairs = rows.map(([name, value]) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, value))
      );
      return element("section", {}, element("h3", {}, title), element("dl", {}, ...pairs));
    }),
  );
}
