/**
 * The state of the playground, and its text in the link of the page: `#workers=4&a.schedule=1f1b`,
 * without values that are defaults.
 *
 * @module
 */

import {
  type Costs,
  findSchedule,
  type ScheduleOptions,
  type Timeline,
} from "../../../schedules/mod.ts";

/** A number that a control sets. */
export interface NumberField {
  readonly label: string;
  readonly least: number;
  readonly most: number;
  readonly step: number;
  /** Absent: the schedule chooses unless it is given. */
  readonly otherwise?: number;
  readonly help: string;
}

const time = (label: string, otherwise: number, help: string, most = 4): NumberField => ({
  ...{ label, least: 0, most, step: 0.05, otherwise, help },
});

const whole = (label: string, least: number, most: number, otherwise: number, help: string) => ({
  ...{ label, least, most, step: 1, otherwise, help },
});

/** Numbers of both schedules. */
export const SHARED = {
  workers: whole("Workers D", 1, 64, 4, "workers of the pipeline"),
  microBatches: whole("Micro-batches N", 1, 256, 8, "micro-batches of a step"),
  forward: time("Forward F", 1, "time of a forward of 1/D of the model"),
  input: time("Input I", 1, "time of the backward for the input"),
  weight: time("Weights W", 1, "time of the backward for the weights; B takes I + W"),
  send: time("Message", 0, "time of a message between two workers", 2),
  jitter: time("Jitter ±", 0, "each time is multiplied by a random factor from 1 - J to 1 + J", 1),
  seed: whole("Seed", 0, 99, 0, "seed of these factors"),
} as const satisfies Readonly<Record<string, NumberField>>;

const option = (label: string, most: number, help: string, step = 1, least = step) => ({
  ...{ label, least, most, step, help },
});

/** Options of some schedules. */
export const OPTIONS = {
  chunks: option("Chunks", 8, "stages on each worker"),
  waves: option("Waves", 8, "waves of stages over the workers"),
  slices: option("Slices", 16, "slices of each micro-batch's sequence"),
  pipelines: option("Pipelines f", 8, "pipelines down, and as many up"),
  pipelineLimit: option("In flight", 256, "most micro-batches in flight"),
  activationLimit: option(
    "Activations",
    64,
    "most activations of a worker, in 1/D of a model's",
    0.5,
  ),
  weightBacklog: option("Backlog K", 16, "most micro-batches of a stage between I and W", 1, 0),
  weightLimit: option("Weights", 8, "most weights of a worker, in 1/D of the model"),
} as const satisfies Readonly<Record<string, NumberField>>;

/** Options of some schedules that are one of several words; the first is the default. */
export const CHOICES = {
  scale: { label: "Scale", words: ["direct", "doubling", "halving"] },
  order: { label: "Order", words: ["bfw", "bf", "backward-first", "fifo"] },
} as const;

/** Switches of schedules with lists. */
export const SWITCHES = {
  elastic: "Elastic",
  recompute: "Recompute ahead",
} as const;

/** The name of lists that are not a schedule's of the package. */
export const OWN = "own";

type OptionName = keyof typeof OPTIONS;
type ChoiceName = keyof typeof CHOICES;

/** One of the two schedules. */
export interface Side {
  /** Its name, or {@linkcode OWN}. */
  readonly schedule: string;
  readonly numbers: Readonly<Partial<Record<OptionName, number | undefined>>>;
  readonly words: Readonly<Partial<Record<ChoiceName, string>>>;
  readonly switches: Readonly<Partial<Record<keyof typeof SWITCHES, true>>>;
  /** Own lists as CSV. */
  readonly csv?: string;
  /** Measured times of these lists, of a trace; a link does not keep them. */
  readonly timed?: Timeline;
}

/** Numbers of both schedules. */
export type Shared = Readonly<Record<keyof typeof SHARED, number>>;

/** The state of the page. */
export interface Settings {
  readonly shared: Shared;
  /** One or two schedules. */
  readonly sides: readonly Side[];
}

const entriesOf = <K extends string, V>(of: Readonly<Record<K, V>>) =>
  Object.entries(of) as [K, V][];

/** Returns the options of a side that have values. */
const givenIn = ({ numbers, words }: Side) =>
  Object.entries({ ...numbers, ...words }).filter(([, value]) => value !== undefined);

/** The state of a page without a link. */
export const START = "a.schedule=1f1b&b.schedule=zb-h1";

/** Returns the switches of a side; a message-driven schedule, which has no lists, has none. */
export const switchesOf = ({ schedule, switches }: Side): Side["switches"] =>
  schedule === "message-driven" ? {} : switches;

/** Returns whether an option concerns a schedule: it reads it, or follows its lists elastically. */
export function concerns(side: Side, name: string): boolean {
  const { schedule } = side;
  const limits = switchesOf(side).elastic && ["activationLimit", "weightBacklog"].includes(name);
  return limits || schedule !== OWN && (findSchedule(schedule).reads?.includes(name) ?? false);
}

/** Marks of lists in a link, where a comma would take three characters. */
const LINK_MARKS: Readonly<Record<string, string>> = { ",": "_", "\n": "!", "_": "~" };
const CSV_MARKS = Object.fromEntries(Object.entries(LINK_MARKS).map(([csv, link]) => [link, csv]));

/** Reads a number of a link; the default if it is not within its limits. */
function numberIn(text: string | null, { least, most, otherwise }: NumberField) {
  const value = Number(text ?? NaN);
  return value >= least && value <= most ? value : otherwise;
}

function readSide(link: URLSearchParams, side: string): Side | undefined {
  const get = (name: string) => link.get(`${side}.${name}`), schedule = get("schedule");
  if (!schedule) return undefined;
  if (schedule !== OWN) findSchedule(schedule);
  const given = <K extends string, V, R>(of: Readonly<Record<K, V>>, read: (k: K, v: V) => R) =>
    Object.fromEntries(
      entriesOf(of).map(([name, field]) => [name, read(name, field)] as const)
        .filter(([, value]) => value !== undefined),
    ) as Partial<Record<K, NonNullable<R>>>;
  const csv = get("lists")?.replace(/[_!~]/g, (mark) => CSV_MARKS[mark]!);
  return {
    schedule,
    numbers: given(OPTIONS, (name, field) => numberIn(get(name), field)),
    words: given(CHOICES, (name, { words }) => words.find((word) => word === get(name))),
    switches: given(SWITCHES, (name) => get(name) === "1" ? true as const : undefined),
    ...csv && { csv },
  };
}

/**
 * Reads the state in a link.
 *
 * @throws {RangeError} if it names no schedule of the package.
 */
export function readLink(text: string): Settings {
  const link = new URLSearchParams(text || START);
  const shared = Object.fromEntries(
    entriesOf(SHARED).map(([name, field]) => [name, numberIn(link.get(name), field)]),
  ) as Shared;
  const sides = [readSide(link, "a"), readSide(link, "b")].filter((side) => side !== undefined);
  return { shared, sides: sides.length > 0 ? sides : readLink(START).sides };
}

/** Formats the state as a link. */
export function formatLink({ shared, sides }: Settings): string {
  const link = new URLSearchParams();
  for (const [name, { otherwise }] of entriesOf(SHARED)) {
    if (shared[name] !== otherwise) link.set(name, String(shared[name]));
  }
  for (const [i, side] of sides.entries()) {
    const put = (name: string, value: unknown) => link.set(`${"ab"[i]}.${name}`, String(value));
    put("schedule", side.schedule);
    for (const [name, value] of givenIn(side)) put(name, value);
    for (const name of Object.keys(side.switches)) put(name, 1);
    if (side.csv) put("lists", side.csv.trim().replace(/[,\n_]/g, (mark) => LINK_MARKS[mark]!));
  }
  return link.toString();
}

/** Returns the costs of actions. */
export const costsOf = ({ forward, input, weight, send }: Shared): Costs => ({
  ...{ forward, input, weight, send },
});

/** Returns the options of a schedule that it reads. */
export function optionsOf({ workers, microBatches }: Shared, side: Side): ScheduleOptions {
  const own = givenIn(side)
    .filter(([name]) => findSchedule(side.schedule).reads?.includes(name));
  return { workers, microBatches, ...Object.fromEntries(own) };
}

const kebab = (name: string) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** Returns the command that trains with a schedule. */
export function trainCommand({ shared, sides }: Settings, index: number): string {
  const side = sides[index]!, { workers, microBatches } = shared, isOwn = side.schedule === OWN;
  const flags = isOwn
    ? [`--schedule-file ${OWN}.csv`]
    : [`--schedule ${side.schedule}`, `--workers ${workers}`, `--micro-batches ${microBatches}`];
  for (const [name, value] of givenIn(side)) {
    if (concerns(side, name)) flags.push(`--${kebab(name)} ${value}`);
  }
  if (!isOwn && findSchedule(side.schedule).reads?.includes("costs")) {
    const { forward, input, weight, send } = costsOf(shared);
    flags.push(`--forward ${forward} --input ${input} --weight ${weight} --send ${send}`);
  }
  const { elastic, recompute } = switchesOf(side);
  if (elastic) flags.push("--policy elastic");
  if (recompute) flags.push("--recompute-ahead");
  return `deno task train ${flags.join(" ")}`;
}
