/**
 * The black box of a run: a file of bounded size with the last messages to each actor. It survives
 * `kill -9`, because each message is written before its actor handles it.
 *
 * [Note: layout] A head, a ring of records for each actor, and two slots for each worker. A record has
 * 24 bytes: segment, sender, type, number and digest of a message, and the bytes that are kept of it.
 * Segment g of a worker ends with its g-th StepDone. The messages of segment g are in slot g mod 2,
 * each behind its record; when the segment ends, its records move to the ring. The file is mapped into
 * memory where that is safe: a call of the system before each action would take most of the time.
 *
 * @module
 */

import { crc32 } from "node:zlib";
import { refusal, resultOr } from "../../kernels/internal.ts";
import { SUPERVISOR_MESSAGES } from "../pipeline/supervisor.ts";
import { WORKER_MESSAGES } from "../pipeline/worker.ts";
import type { Effect, ObservedActor, ObservedMessage, Observer } from "../runtime/observer.ts";
import type { Message } from "../runtime/mod.ts";
import { VIEWS } from "../transports/codec.ts";

/** Name of the file in the folder of a run. */
export const BLACK_BOX = "black-box";

/** Maximum bytes of a file. */
const BOX_BYTES = 64 * 2 ** 20;

/** The first bytes of a file, with the version of its format. */
const MAGIC = "troupebb1\n";

/** Offsets in the head: of {@linkcode BoxStart}, of the length of the facts, and of the facts. */
const START_AT = 16, LENGTH_AT = 32, FACTS_AT = 36;

/** The unit of sizes, so that parts do not share pages. */
const PAGE = 4096;

/** Bytes of a record, and of a record with its check in front of a message. */
const RECORD = 24, ENTRY = 28;

/** Maximum bytes of all rings, and the number of records of a step that fit. */
const RING_BYTES = 2 ** 24, STEP_RECORDS = 256;

/** Buffers of at least this many bytes are written as they are, and the most bytes of all others. */
const LARGE_BYTES = 4096, SMALL_BYTES = 2 ** 16;

/** The share of a slot that large messages may take, and bytes of a step's small ones in a slot. */
const LARGE_SHARE = 7 / 8, SMALL_BYTES_OF_STEP = 2 ** 20;

/** Facts about a run in the head of its black box. */
export interface BoxFacts {
  /** Version of the package. */
  readonly package: string;
  /** Arguments of `troupe train` that repeat the run. */
  readonly train: readonly string[];
  /** The step after which the run began. */
  readonly after: number;
  /** Workers of all replicas. */
  readonly workers: number;
  /** Steps whose records are kept. */
  readonly steps: number;
  /** Bytes of arrays that a worker gets in a step. */
  readonly stepBytes: number;
}

/** Offsets and sizes of the parts of a file: of `records` in each ring, from `ringsAt` on, and slots. */
type BoxLayout = ReturnType<typeof layOut>;

/** Lays out a file of at most {@linkcode BOX_BYTES}. */
export function layOut(path: string, facts: BoxFacts) {
  const { workers, steps, stepBytes } = facts,
    actors = workers + 1,
    up = (bytes: number) => Math.ceil(bytes / PAGE) * PAGE;
  const ringsAt = up(FACTS_AT + new TextEncoder().encode(JSON.stringify(facts)).length);
  const records = Math.min(steps * STEP_RECORDS, Math.floor(RING_BYTES / RECORD / actors));
  const slotsAt = ringsAt + up(actors * records * RECORD);
  const most = Math.floor((BOX_BYTES - slotsAt) / 2 / workers / PAGE) * PAGE;
  const slotBytes = Math.min(most, up((stepBytes + SMALL_BYTES_OF_STEP) / LARGE_SHARE));
  return { path, records, ringsAt, slotBytes, workers, bytes: slotsAt + 2 * workers * slotBytes };
}

const ringAt = ({ ringsAt, records }: BoxLayout, actor: number) =>
  ringsAt + actor * records * RECORD;

const slotAt = ({ bytes, workers, slotBytes }: BoxLayout, actor: number, segment: number) =>
  bytes - 2 * workers * slotBytes + (2 * (actor - 1) + segment % 2) * slotBytes;

/** Makes an empty file. @throws {Error} when it cannot be written. */
export function makeBox(layout: BoxLayout, facts: BoxFacts): void {
  using file = Deno.openSync(layout.path, { write: true, create: true, truncate: true });
  const text = new TextEncoder().encode(JSON.stringify(facts)), head = new Uint8Array(FACTS_AT);
  new TextEncoder().encodeInto(MAGIC, head);
  new DataView(head.buffer).setUint32(LENGTH_AT, text.length, true);
  writeAll(file, head);
  writeAll(file, text);
  // The disk must have room for the whole file: a mapped file cannot report a full disk.
  if (reserve(layout)) return;
  const zeros = new Uint8Array(2 ** 20);
  for (let left = layout.bytes - FACTS_AT - text.length; left > 0; left -= zeros.length) {
    writeAll(file, zeros.subarray(0, left));
  }
}

/**
 * File systems by their numbers that write a block in place (ext, XFS, tmpfs, and overlays of them). On
 * others a full disk could end the process that writes to mapped memory.
 */
const IN_PLACE: ReadonlySet<bigint> = new Set([0xef53n, 0x58465342n, 0x01021994n, 0x794c7630n]);

/** Arguments of the C library on Linux. */
const READ_AND_WRITE = 2,
  PROTECTION = 3,
  SHARED = 1,
  STATFS_WORDS = 32,
  MAP_FAILED = 2n ** 64n - 1n,
  MADV_RANDOM = 1;

/** An open file of which parts are overwritten. */
class BoxFile {
  #mapped: ReturnType<typeof mapFile>;
  readonly #file: Deno.FsFile | undefined;
  /** Offset of the file's cursor. */
  #at = 0;

  constructor(layout: BoxLayout) {
    this.#mapped = mapFile(layout);
    this.#file = this.#mapped ? undefined : Deno.openSync(layout.path, { write: true });
  }

  /** Overwrites bytes from an offset. Another process sees them even if this one is killed then. */
  write(at: number, bytes: Uint8Array): void {
    if (this.#mapped) return this.#mapped.bytes.set(bytes, at);
    if (at !== this.#at) this.#file!.seekSync(at, Deno.SeekMode.Start);
    writeAll(this.#file!, bytes);
    this.#at = at + bytes.length;
  }

  /** Closes the file. */
  close(): void {
    this.#mapped?.close();
    this.#mapped = undefined; // the memory is unmapped
    this.#file?.close();
  }
}

/** Functions of the C library. */
const SYSTEM = {
  statfs: { parameters: ["buffer", "buffer"], result: "i32" },
  open: { parameters: ["buffer", "i32"], result: "i32" },
  mmap: { parameters: ["pointer", "usize", "i32", "i32", "i32", "i64"], result: "pointer" },
  posix_fallocate: { parameters: ["i32", "i64", "i64"], result: "i32" },
  madvise: { parameters: ["pointer", "usize", "i32"], result: "i32" },
  munmap: { parameters: ["pointer", "usize"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
} as const;

/** Calls the C library of Linux; returns undefined on other systems, and where FFI is denied. */
function withSystem<T>(use: (system: Deno.StaticForeignLibraryInterface<typeof SYSTEM>) => T) {
  if (Deno.build.os !== "linux") return undefined;
  return resultOr(() => {
    const library = Deno.dlopen("libc.so.6", SYSTEM);
    try {
      return use(library.symbols);
    } finally {
      library.close();
    }
  }, undefined);
}

const pathOf = ({ path }: BoxLayout) => ENCODER.encode(`${path}\0`);

/** Extends a file to its size, with room for it on the disk; returns whether that was possible. */
const reserve = (layout: BoxLayout): boolean =>
  withSystem((system) => {
    const file = system.open(pathOf(layout), READ_AND_WRITE);
    const isDone = file >= 0 && system.posix_fallocate(file, 0n, BigInt(layout.bytes)) === 0;
    if (file >= 0) system.close(file);
    return isDone;
  }) ?? false;

/** Maps a file into memory; returns undefined where that is not possible or not safe. */
function mapFile(layout: BoxLayout) {
  const { path, bytes: size } = layout, length = BigInt(size);
  // Memory behind the end of a file cannot be written to.
  if (Deno.statSync(path).size !== size) return undefined;
  return withSystem((system) => {
    const status = new BigInt64Array(STATFS_WORDS);
    const isSafe = system.statfs(pathOf(layout), status) === 0 && IN_PLACE.has(status[0]!);
    const file = isSafe ? system.open(pathOf(layout), READ_AND_WRITE) : -1;
    const start = system.mmap(null, length, PROTECTION, SHARED, file, 0n);
    if (file >= 0) system.close(file);
    if (Deno.UnsafePointer.value(start) === MAP_FAILED) return undefined;
    // With readahead the first touch of a part takes 3 ms.
    system.madvise(start, length, MADV_RANDOM);
    const bytes = new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(start!, size));
    return { bytes, close: () => void withSystem(({ munmap }) => munmap(start, length)) };
  });
}

function writeAll(file: Deno.FsFile, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
}

/** Types of messages by their number in a record; 0 is any other. */
const TYPES: readonly string[] = [
  ...new Set(["", "init", "finish", ...SUPERVISOR_MESSAGES, ...WORKER_MESSAGES]),
];
const TYPE_NUMBERS = new Map(TYPES.map((type, number) => [type, number]));

/** The number of a sender outside the run. */
const OUTSIDE = 0xffff;

/** Returns the number of an actor: 0 is the supervisor, n + 1 is `worker-n`. */
export function actorNumber(id: string): number {
  if (id === "supervisor") return 0;
  return id.startsWith("worker-") ? Number(id.slice("worker-".length)) + 1 : OUTSIDE;
}

/** Returns the id of the actor with a number. */
const actorId = (number: number): string =>
  number === OUTSIDE ? "outside" : number === 0 ? "supervisor" : `worker-${number - 1}`;

/** Messages with values that are equal whenever the run is repeated. */
const COMPARED: ReadonlySet<string> = new Set([
  ...["Inject", "Activation", "Gradient", "ReducePart", "TieGradient", "Loss"],
]);

/** Keys of values that depend on the attempt. */
const UNSTABLE: ReadonlySet<string> = new Set(["round", "checksum"]);

/** The digest of a message, as two words: of its arrays, and of its name; 0 if it is not compared. */
export type MessageDigest = readonly [values: number, name: number];

const NOT_COMPARED: MessageDigest = [0, 0];

/** A message without its arrays. */
class Content {
  /** The arrays in order, and their bytes. */
  readonly arrays: ArrayBufferView[] = [];
  readonly bytes: Uint8Array[] = [];
  /** The message with numbers in place of arrays, as JSON; undefined if it has no such form. */
  readonly rest: unknown;
  readonly digest: MessageDigest = NOT_COMPARED;
  #name: number;
  #isPlain = true;

  constructor(message: Message) {
    const { type, isEvaluation, round } = message as Message & Record<string, unknown>;
    this.#name = TYPE_NUMBERS.get(type) ?? 0;
    if (!COMPARED.has(type) && (!PLAYED.has(type) || BARE.has(type))) return;
    const rest = this.#take(message, true);
    this.rest = this.#isPlain ? rest : undefined;
    // The losses of an evaluation have no round.
    const isCompared = COMPARED.has(type) && this.bytes.length > 0 && !isEvaluation &&
      (type !== "Loss" || round !== undefined);
    if (!isCompared) return;
    this.digest = [this.bytes.reduce((sum, bytes) => crc32(bytes, sum), 0) | 0, this.#name || 1];
  }

  /** @param isNamed True if the value is part of the name of the message. */
  #take(value: unknown, isNamed: boolean): unknown {
    if (typeof value === "number") {
      if (isNamed) this.#add(value + 1);
      const isZero = Object.is(value, -0);
      return Number.isFinite(value) && !isZero ? value : { $: isZero ? "-0" : `${value}` };
    }
    if (typeof value === "string") {
      if (isNamed) { for (let i = 0; i < value.length; i++) this.#add(value.charCodeAt(i)); }
      return value;
    }
    if (typeof value !== "object" || value === null) return value;
    if (ArrayBuffer.isView(value)) {
      const { buffer, byteOffset, byteLength } = value;
      this.bytes.push(new Uint8Array(buffer, byteOffset, byteLength));
      return { $: this.arrays.push(value) - 1 };
    }
    if (Array.isArray(value)) return value.map((item) => this.#take(item, isNamed));
    if (Object.getPrototypeOf(value) !== Object.prototype) this.#isPlain = false;
    const rest: Record<string, unknown> = {};
    for (const key in value) {
      const item = (value as Record<string, unknown>)[key];
      rest[key] = this.#take(item, isNamed && !UNSTABLE.has(key));
    }
    return rest;
  }

  #add(word: number): void {
    this.#name = Math.imul(this.#name, 0x01000193) ^ word;
  }
}

/** Returns the digest of a message. */
export const digestOfMessage = (message: Message): MessageDigest => new Content(message).digest;

/** Returns the arrays in a message, in order. */
export const arraysOf = (message: Message): readonly ArrayBufferView[] =>
  new Content(message).arrays;

/** Messages to a worker that belong to steps; others request its state, or make it write the state. */
export const PLAYED: ReadonlySet<string> = new Set([
  ...["Begin", "Inject", "Activation", "Gradient", "Dispatch", "Reduce", "ReducePart"],
  ...["TieGradient", "Commit", "Abort", "StepBucket", "Freeze"],
]);

/** Messages without values, for which the record is sufficient. */
const BARE: ReadonlySet<string> = new Set(["Dispatch", "StepBucket", "Abort", "Freeze"]);

/** Records the messages to one actor. */
class ActorRecords {
  readonly #file: BoxFile;
  /** Records of the segment, in the order of the ring. */
  readonly #records: Uint8Array<ArrayBuffer>;
  readonly #entry = new DataView(new ArrayBuffer(SMALL_BYTES));
  #segment = 0;
  /** The step of segment 0. */
  #start: number | undefined;
  #count = 0;
  /** Records in the ring before, and bytes in the slot. */
  #before = 0;
  #used = 0;

  constructor(private readonly layout: BoxLayout, private readonly actor: number) {
    this.#file = new BoxFile(layout);
    this.#records = new Uint8Array(layout.records * RECORD);
  }

  /** Records a message. */
  add({ from, nth, message }: ObservedMessage): void {
    const content = new Content(message), [values, name] = content.digest, entry = this.#entry;
    const { type } = message, isPlayed = this.actor !== 0 && PLAYED.has(type) && !BARE.has(type);
    const small = isPlayed ? encodeInto(new Uint8Array(entry.buffer, ENTRY), content) : 0;
    const large = small > 0 ? content.bytes.filter(isLarge) : [];
    const bytes = large.reduce((sum, { length }) => sum + length, small);
    // Some room is reserved for small messages, without which the others could not be replayed.
    const { slotBytes } = this.layout,
      room = bytes < LARGE_BYTES ? slotBytes : slotBytes * LARGE_SHARE;
    const kept = this.#used + ENTRY + bytes <= room ? bytes : 0;
    entry.setUint32(0, this.#segment + 1, true);
    entry.setUint16(4, actorNumber(from.id), true);
    entry.setUint16(6, TYPE_NUMBERS.get(type) ?? 0, true);
    entry.setUint32(8, nth, true);
    entry.setInt32(12, values, true);
    entry.setInt32(16, name, true);
    entry.setUint32(20, kept, true);
    const record = new Uint8Array(entry.buffer, 0, RECORD), { records } = this.layout;
    this.#records.set(record, (this.#before + this.#count++) % records * RECORD);
    if (this.actor === 0 || this.#used + ENTRY + kept > slotBytes) return;
    entry.setUint32(RECORD, checkOf(record), true);
    const first = new Uint8Array(entry.buffer, 0, ENTRY + (kept > 0 ? small : 0));
    let at = slotAt(this.layout, this.actor, this.#segment) + this.#used;
    for (const part of kept > 0 ? [first, ...large] : [first]) {
      this.#file.write(at, part);
      at += part.length;
    }
    this.#used += ENTRY + kept;
  }

  /** Begins a step, whose messages are those of the next segment; the first has begun. */
  begin(step: number): void {
    if (this.#start !== undefined) this.end();
    if (this.#start === step - this.#segment) return;
    // A repeated step has another segment.
    this.#start = step - this.#segment;
    const start = Float64Array.of(this.#start, this.#segment + 1);
    this.#file.write(START_AT, new Uint8Array(start.buffer));
  }

  /** Ends a segment. */
  end(): void {
    const { records } = this.layout, count = Math.min(this.#count, records);
    const end = this.#before + this.#count, from = (end - count) % records, to = end % records;
    if (count > 0 && from < to) this.#write(from, to);
    else if (count > 0) {
      this.#write(from, records);
      this.#write(0, to);
    }
    this.#before = end;
    this.#count = 0;
    this.#segment++;
    this.#used = 0;
  }

  close(): void {
    this.#file.close();
  }

  #write(from: number, to: number): void {
    const at = ringAt(this.layout, this.actor) + from * RECORD;
    this.#file.write(at, this.#records.subarray(from * RECORD, to * RECORD));
  }
}

/** Returns the checksum of a record. For 24 bytes, a call of crc32 would take longer. */
export const checkOf = (record: Uint8Array) =>
  record.reduce((sum, byte) => Math.imul(sum ^ byte, 0x01000193), 1) >>> 0;

const isLarge = ({ length }: Uint8Array) => length >= LARGE_BYTES;

/** Kinds of arrays in the order of their numbers, and bytes of the length of the JSON in front of it. */
const KINDS = VIEWS.map(({ prototype }) => prototype as object), HEAD = 4;

/**
 * Encodes a message: its JSON with kinds and sizes of its arrays, then the small ones. The large ones
 * follow.
 *
 * @returns the number of bytes; 0 if there is not enough room, or the message has no JSON.
 */
function encodeInto(target: Uint8Array, { rest, arrays, bytes }: Content): number {
  if (rest === undefined) return 0;
  const kindOf = (array: ArrayBufferView) => KINDS.indexOf(Object.getPrototypeOf(array));
  const kinds = arrays.map((array) => [kindOf(array), array.byteLength]);
  const text = JSON.stringify([rest, kinds]), small = bytes.filter((one) => !isLarge(one));
  const room = HEAD + 3 * text.length + small.reduce((sum, { length }) => sum + length, 0);
  if (room > target.length) return 0;
  const { written } = ENCODER.encodeInto(text, target.subarray(HEAD));
  new DataView(target.buffer, target.byteOffset).setUint32(0, written, true);
  return small.reduce((at, one) => (target.set(one, at), at + one.length), HEAD + written);
}

const ENCODER = new TextEncoder();

/**
 * Opens the recorder of an isolate.
 *
 * @param layout a {@linkcode BoxLayout}.
 */
export function openBoxRecorder(_isolate: number, layout: unknown): Observer {
  const box = layout as BoxLayout, actors = new Map<number, ActorRecords>();
  const ended = new Set<number>();
  /** Writes for an actor, up to the first error, such as a full disk: the run needs no black box. */
  const attempt = (number: number, write: () => void) => {
    try {
      write();
    } catch {
      close(number);
    }
  };
  const close = (number: number) => {
    actors.get(number)?.close();
    actors.delete(number);
  };
  return {
    begins({ ref }: ObservedActor, message: ObservedMessage) {
      const number = actorNumber(ref.id);
      if (!(number <= box.workers)) return;
      const { type, request } = message.message as Message & { request?: { step: number } };
      attempt(number, () => {
        if (type === "init") {
          close(number); // the file of an earlier worker in this isolate
          actors.set(number, new ActorRecords(box, number));
        }
        const actor = actors.get(number);
        if (type === "RunStep") actor?.begin(request!.step);
        actor?.add(message);
      });
    },
    did({ ref }: ObservedActor, { kind, value }: Effect) {
      const { type } = (value ?? {}) as Partial<Message>;
      if (kind === "send" && type === "StepDone") ended.add(actorNumber(ref.id));
    },
    ends({ ref }: ObservedActor) {
      if (ended.size === 0) return;
      const number = actorNumber(ref.id);
      if (ended.delete(number)) attempt(number, () => actors.get(number)?.end());
    },
    closes: () => [...actors.keys()].forEach(close),
  };
}

/** A message that an actor received. */
export interface BoxRecord {
  readonly segment: number;
  readonly from: string;
  readonly type: string;
  /** Number of earlier messages from this sender. */
  readonly nth: number;
  readonly digest: MessageDigest;
  /** The message, if it was kept. */
  readonly message: Message | undefined;
}

/** The content of a black box. */
export interface BlackBox {
  readonly facts: BoxFacts;
  /** The step of segment 0, and the first segment for which it is valid; none before the first step. */
  readonly start: { readonly step: number; readonly since: number } | undefined;
  /** Records of earlier segments, by actor. */
  readonly records: ReadonlyMap<string, readonly BoxRecord[]>;
  /** All records of the last two segments, by worker, in order. */
  readonly last: ReadonlyMap<string, readonly BoxRecord[]>;
}

/** Returns whether a file begins as a black box does. */
export function isBlackBox(path: string): boolean {
  using file = Deno.openSync(path);
  const head = new Uint8Array(MAGIC.length);
  return file.readSync(head) === head.length && new TextDecoder().decode(head) === MAGIC;
}

/**
 * Reads a black box, which may come from an untrusted source.
 *
 * @throws {SyntaxError} when the file is not a black box, or a part is missing or changed.
 */
export function readBlackBox(path: string): BlackBox {
  const refuse = (must: string, received: unknown) =>
    refusal(`read the black box ${path}`, must, received, SyntaxError);
  const { size } = Deno.statSync(path);
  if (size < FACTS_AT || size > BOX_BYTES) {
    throw refuse(`it must have ${FACTS_AT} to ${BOX_BYTES} bytes`, size);
  }
  const bytes = Deno.readFileSync(path), view = new DataView(bytes.buffer);
  const text = bytes.subarray(FACTS_AT, FACTS_AT + view.getUint32(LENGTH_AT, true));
  const facts = readFacts(text);
  if (!facts) throw refuse("its head must hold the facts of a run", "other bytes");
  const layout = layOut(path, facts), { workers, records: count } = layout;
  if (layout.bytes !== size) throw refuse(`it must have ${layout.bytes} bytes`, size);
  const records = new Map<string, BoxRecord[]>(), last = new Map<string, BoxRecord[]>();
  for (let actor = 0; actor <= workers; actor++) {
    const ring = Array.from({ length: count }, (_, i) => {
      const at = ringAt(layout, actor) + i * RECORD;
      if (view.getUint32(at, true) === 0) return [];
      const record = readRecord(view, at, workers);
      if (!record) throw refuse("its records must be as they were written", "other bytes");
      return [record];
    }).flat();
    records.set(actorId(actor), ring);
    if (actor === 0) continue;
    const slots = [0, 1].map((slot) => {
      const at = slotAt(layout, actor, slot);
      return readSlot(bytes.subarray(at, at + layout.slotBytes), slot, workers);
    });
    const inOrder = slots.sort(([a], [b]) => (a?.segment ?? -1) - (b?.segment ?? -1));
    last.set(actorId(actor), inOrder.flat());
  }
  const [step, since] = new Float64Array(bytes.slice(START_AT, LENGTH_AT).buffer);
  if (!Number.isSafeInteger(step) || !Number.isSafeInteger(since)) {
    throw refuse("its first step must be a whole number", step);
  }
  const start = since === 0 ? undefined : { step: step!, since: since! - 1 };
  return { facts, start, records, last };
}

/** Limits of the values in a head. */
const MAX_ARGUMENTS = 256, MAX_ARGUMENT_LENGTH = 4096, MAX_WORKERS = 1024;

/** Returns the facts of a head; undefined for invalid ones. */
function readFacts(text: Uint8Array): BoxFacts | undefined {
  return resultOr(() => {
    const facts = JSON.parse(new TextDecoder().decode(text)) as BoxFacts;
    const isCount = (value: number, least = 0, most = Number.MAX_SAFE_INTEGER) =>
      Number.isSafeInteger(value) && value >= least && value <= most;
    const { package: version, train, after, workers, steps, stepBytes } = facts;
    const areCounts = isCount(workers, 1, MAX_WORKERS) && isCount(steps, 1) &&
      [after, stepBytes].every((count) => isCount(count));
    const isRight = typeof version === "string" && areCounts && train.length <= MAX_ARGUMENTS &&
      train.every((one) => typeof one === "string" && one.length <= MAX_ARGUMENT_LENGTH);
    return isRight ? facts : undefined;
  }, undefined);
}

/** Returns a record without its message; undefined if it is invalid. */
function readRecord(view: DataView, at: number, workers: number): BoxRecord | undefined {
  const from = view.getUint16(at + 4, true), type = TYPES[view.getUint16(at + 6, true)];
  if (type === undefined || from > workers && from !== OUTSIDE) return undefined;
  return {
    segment: view.getUint32(at, true) - 1,
    from: actorId(from),
    type,
    nth: view.getUint32(at + 8, true),
    digest: [view.getInt32(at + 12, true), view.getInt32(at + 16, true)],
    message: undefined,
  };
}

/** Reads the messages of a segment, up to the first incomplete one, which a kill may have left. */
function readSlot(slot: Uint8Array, parity: number, workers: number): BoxRecord[] {
  const view = new DataView(slot.buffer, slot.byteOffset, slot.length), found: BoxRecord[] = [];
  for (let at = 0; at + ENTRY <= slot.length;) {
    const check = checkOf(slot.slice(at, at + RECORD)), kept = view.getUint32(at + 20, true);
    const record = check === view.getUint32(at + RECORD, true) && readRecord(view, at, workers);
    if (!record || record.segment !== (found[0]?.segment ?? record.segment)) break;
    if (record.segment % 2 !== parity || at + ENTRY + kept > slot.length) break;
    const message = kept > 0 ? decode(slot.slice(at + ENTRY, at + ENTRY + kept)) : undefined;
    const isSame = message?.type === record.type &&
      digestOfMessage(message).every((word, i) => word === record.digest[i]);
    if (kept > 0 && !isSame) break;
    found.push({ ...record, message: BARE.has(record.type) ? { type: record.type } : message });
    at += ENTRY + kept;
  }
  return found;
}

/** Returns an encoded message; undefined if it is not whole. */
function decode(bytes: Uint8Array<ArrayBuffer>): Message | undefined {
  return resultOr(() => {
    let at = HEAD + new DataView(bytes.buffer).getUint32(0, true);
    const text = new TextDecoder().decode(bytes.subarray(HEAD, at)), arrays: unknown[] = [];
    const [, kinds] = JSON.parse(text) as [unknown, [kind: number, size: number][]];
    const isSmall = ([, size]: [number, number]) => size < LARGE_BYTES;
    // Small arrays are before large ones, each in order.
    const inOrder = [...kinds.entries()].sort(([, a], [, b]) => +isSmall(b) - +isSmall(a));
    for (const [i, [kind, size]] of inOrder) {
      const View = VIEWS[kind] as Uint8ArrayConstructor;
      arrays[i] = new View(bytes.slice(at, at += size).buffer);
    }
    const [message] = JSON.parse(text, (_, item) => {
      if (!item || typeof item !== "object" || !Object.hasOwn(item, "$")) return item;
      return typeof item.$ === "number" ? arrays[item.$] : Number(item.$);
    }) as [Message];
    return at === bytes.length ? message : undefined;
  }, undefined);
}
