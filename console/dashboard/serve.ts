/**
 * Serves the page on the loopback address, under an unguessable path, for reading only.
 *
 * [Note: access] Any program on this machine, and any page in its browsers, can reach a loopback
 * port. So the path has 128 random bits; the Host header must be the address itself, which refuses
 * other names of 127.0.0.1 (DNS rebinding); other origins can neither frame nor read responses, and
 * scripts are loaded only from here.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { once } from "node:events";
import uplot from "uplot/dist/uPlot.iife.min.js" with { type: "text" };
import uplotStyle from "uplot/dist/uPlot.min.css" with { type: "text" };
import charts from "./page/charts.js" with { type: "text" };
import elements from "./page/elements.js" with { type: "text" };
import index from "./page/index.html" with { type: "text" };
import main from "./page/main.js" with { type: "text" };
import panels from "./page/panels.js" with { type: "text" };
import pointer from "./page/pointer.js" with { type: "text" };
import state from "./page/state.js" with { type: "text" };
import timeline from "./page/timeline.js" with { type: "text" };
import style from "./page/style.css" with { type: "text" };
import type { RunView } from "./view.ts";

const SCRIPTS = {
  "charts.js": charts,
  "elements.js": elements,
  "main.js": main,
  "panels.js": panels,
  "pointer.js": pointer,
  "state.js": state,
  "timeline.js": timeline,
  "uplot.js": uplot,
};

const typed = (type: string, files: Readonly<Record<string, string>>) =>
  Object.entries(files).map(([name, text]) => [name, { type, text }] as const);

/** Files by name; the name of the page is empty. */
const PAGE_FILES: ReadonlyMap<string, { readonly type: string; readonly text: string }> = new Map([
  ...typed("text/html; charset=utf-8", { "": index }),
  ...typed("text/css; charset=utf-8", { "style.css": style, "uplot.css": uplotStyle }),
  ...typed("text/javascript; charset=utf-8", SCRIPTS),
]);

/** Limit of open pages. */
const PAGES_MAX = 16;
/** Limit of unread bytes, above which a page is disconnected. */
const WAITING_BYTES_MAX = 16 * 2 ** 20;
/** Delay after which a disconnected page connects again. */
const AGAIN_MS = 1000;
/** Interval of keep-alive messages, by which closed pages are noticed. */
const ALIVE_EVERY_MS = 15_000;

type StreamController = ReadableStreamDefaultController<Uint8Array>;

const ENCODER = new TextEncoder();

const encode = (data: unknown) => ENCODER.encode(`data: ${JSON.stringify(data)}\n\n`);

/** Event streams of open pages; disposing of them ends each after its pending data. */
export class Streams implements Disposable {
  readonly #pages = new Set<StreamController>();
  readonly #alive: ReturnType<typeof setInterval>;

  /** Starts without pages. */
  constructor() {
    this.#alive = setInterval(() => this.#send(ENCODER.encode(": alive\n\n")), ALIVE_EVERY_MS);
    Deno.unrefTimer(this.#alive);
  }

  /** Number of open pages. */
  get size(): number {
    return this.#pages.size;
  }

  /** Opens a stream that starts with `first`; returns undefined if there are too many. */
  open(first: unknown): ReadableStream<Uint8Array> | undefined {
    const pages = this.#pages;
    if (pages.size >= PAGES_MAX) return undefined;
    let opened: StreamController;
    return new ReadableStream({
      start(page) {
        opened = page;
        page.enqueue(ENCODER.encode(`retry: ${AGAIN_MS}\n`));
        page.enqueue(encode(first));
        pages.add(page);
      },
      cancel: () => void pages.delete(opened),
    }, { highWaterMark: WAITING_BYTES_MAX, size: (bytes) => bytes!.byteLength });
  }

  /** Sends data to all pages. */
  send(data: unknown): void {
    this.#send(encode(data));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#alive);
    for (const page of this.#pages) this.#close(page);
  }

  #send(bytes: Uint8Array): void {
    for (const page of this.#pages) {
      page.enqueue(bytes);
      if (page.desiredSize! < 0) this.#close(page);
    }
  }

  #close(page: StreamController): void {
    if (this.#pages.delete(page)) page.close();
  }
}

const HOST = "127.0.0.1";
/** Minimum and maximum interval of updates. */
const UPDATE_EVERY_MS = 250, UPDATE_MOST_MS = 5000;
/** Between the two, updates take at most 1/UPDATE_SHARE of the time. */
const UPDATE_SHARE = 100;
/** Time limit of the last updates. */
const LAST_UPDATE_MS = 1000;

/**
 * Serves the page of a view until it is disposed of, when open pages get the last updates.
 *
 * @param port 0 selects a free port.
 * @throws {RangeError} when the port is taken.
 */
export function serveDashboard(view: Pick<RunView, "all" | "updates">, port: number) {
  const token = crypto.getRandomValues(new Uint8Array(16)).toHex();
  const events = () => {
    const stream = streams.open(view.all());
    return stream
      ? answer(200, "text/event-stream", stream)
      : answer(503, TEXT, "Too many pages are open.\n");
  };
  const server = listen(port, (request) => {
    const { port } = server.addr as Deno.NetAddr, host = request.headers.get("host");
    if (host !== `${HOST}:${port}` && host !== `localhost:${port}`) {
      return answer(421, TEXT, "Wrong host name.\n");
    }
    if (request.method !== "GET") {
      return answer(405, TEXT, "Only GET is allowed.\n", { allow: "GET" });
    }
    const pathname = URL.parse(request.url)?.pathname, base = `/${token}/`;
    if (!pathname?.startsWith(base)) return answer(404, TEXT, "Not found.\n");
    const name = pathname.slice(base.length), file = PAGE_FILES.get(name);
    if (file) return answer(200, file.type, file.text);
    return name === "events" ? events() : answer(404, TEXT, "Not found.\n");
  });
  const streams = new Streams();
  const stopUpdates = repeat(() => {
    const updates = streams.size > 0 ? view.updates() : undefined;
    if (updates) streams.send(updates);
  });
  return {
    /** Address of the page. */
    url: `http://${HOST}:${(server.addr as Deno.NetAddr).port}/${token}/`,
    stay,
    async [Symbol.asyncDispose](): Promise<void> {
      stopUpdates();
      const updates = view.updates();
      if (updates) streams.send(updates);
      streams[Symbol.dispose]();
      server.unref();
      // Pages that stopped reading are not awaited.
      await deadline(server.shutdown(), LAST_UPDATE_MS).catch(() => {});
    },
  };
}

/**
 * Serves one page that has all its parts and no secrets, until it is disposed of.
 *
 * @param port 0 selects a free port.
 * @throws {RangeError} when the port is taken.
 */
export function servePage(page: string, port: number) {
  const more = { "content-security-policy": "frame-ancestors 'none'" }; // the page has its own
  const server = listen(
    port,
    ({ method, url }) =>
      method === "GET" && URL.parse(url)?.pathname === "/"
        ? answer(200, "text/html; charset=utf-8", page, more)
        : answer(404, TEXT, "Not found.\n"),
  );
  return {
    /** Address of the page. */
    url: `http://${HOST}:${(server.addr as Deno.NetAddr).port}/`,
    stay,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

/** Waits until the signal is aborted. */
async function stay(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}

const TEXT = "text/plain; charset=utf-8";

/** Headers against other origins and caches. */
const HEADERS = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; " +
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; " +
    "frame-ancestors 'none'",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};

const answer = (status: number, type: string, body: BodyInit, more = {}) =>
  new Response(body, { status, headers: { ...HEADERS, "content-type": type, ...more } });

function listen(port: number, handler: Deno.ServeHandler): Deno.HttpServer {
  try {
    return Deno.serve({ hostname: HOST, port, onListen: () => {} }, handler);
  } catch (error) {
    const why = error instanceof Deno.errors.AddrInUse
      ? "free"
      : error instanceof Deno.errors.PermissionDenied
      ? "allowed for this program"
      : undefined;
    if (!why) throw error;
    throw new RangeError(`Cannot serve the page: its port must be ${why}, received ${port}`);
  }
}

/** Calls a function repeatedly, using a small share of the time; returns a function that stops it. */
function repeat(update: () => void): () => void {
  let timer: ReturnType<typeof setTimeout>;
  const schedule = (afterMs: number) => {
    timer = setTimeout(() => {
      const start = performance.now();
      update();
      const waitMs = UPDATE_SHARE * (performance.now() - start);
      schedule(Math.min(UPDATE_MOST_MS, Math.max(UPDATE_EVERY_MS, waitMs)));
    }, afterMs);
    Deno.unrefTimer(timer);
  };
  schedule(UPDATE_EVERY_MS);
  return () => clearTimeout(timer);
}
