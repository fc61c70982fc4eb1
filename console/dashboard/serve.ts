/**
 * The server of the page, for this machine alone: on the loopback address, under a path that nobody
 * can guess, for reading only.
 *
 * [Note: who may ask] Any program of this machine and any page in any browser of it can reach a
 * loopback port. The path has 128 random bits; the Host header must be the address itself, so that
 * a name which somebody points at 127.0.0.1 (DNS rebinding) is refused; no answer may be framed or
 * read by another origin, and scripts come from here alone.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import uplot from "uplot/dist/uPlot.iife.min.js" with { type: "text" };
import uplotStyle from "uplot/dist/uPlot.min.css" with { type: "text" };
import charts from "./page/charts.js" with { type: "text" };
import elements from "./page/elements.js" with { type: "text" };
import index from "./page/index.html" with { type: "text" };
import main from "./page/main.js" with { type: "text" };
import numbers from "./page/numbers.js" with { type: "text" };
import panels from "./page/panels.js" with { type: "text" };
import picture from "./page/picture.js" with { type: "text" };
import pipeline from "./page/pipeline.js" with { type: "text" };
import pointers from "./page/pointers.js" with { type: "text" };
import pointing from "./page/pointing.js" with { type: "text" };
import range from "./page/range.js" with { type: "text" };
import state from "./page/state.js" with { type: "text" };
import style from "./page/style.css" with { type: "text" };
import words from "./page/words.js" with { type: "text" };
import type { RunView } from "./view.ts";

const SCRIPTS = {
  "charts.js": charts,
  "elements.js": elements,
  "main.js": main,
  "numbers.js": numbers,
  "panels.js": panels,
  "picture.js": picture,
  "pipeline.js": pipeline,
  "pointers.js": pointers,
  "pointing.js": pointing,
  "range.js": range,
  "words.js": words,
  "state.js": state,
  "uplot.js": uplot,
};

const typed = (type: string, files: Readonly<Record<string, string>>) =>
  Object.entries(files).map(([name, text]) => [name, { type, text }] as const);

/** The files by name; the page itself has none. */
export const PAGE_FILES: ReadonlyMap<string, { readonly type: string; readonly text: string }> =
  new Map([
    ...typed("text/html; charset=utf-8", { "": index }),
    ...typed("text/css; charset=utf-8", { "style.css": style, "uplot.css": uplotStyle }),
    ...typed("text/javascript; charset=utf-8", SCRIPTS),
  ]);

/** Pages that may be open at a time. */
const PAGES_MAX = 16;
/** Bytes that wait for a page before it is let go. */
const WAITING_BYTES_MAX = 16 * 2 ** 20;
/** When a page that was let go comes again. */
const AGAIN_MS = 1000;
/** A sign of life while nothing happens, so that a page that is gone is noticed. */
const ALIVE_EVERY_MS = 15_000;

/** The pages that are open; disposing of them ends each once it has what was sent. */
export interface Streams extends Disposable {
  /** How many there are. */
  readonly size: number;
  /** A new one, which begins with some data; undefined when there are too many. */
  open(first: unknown): ReadableStream<Uint8Array> | undefined;
  /** Sends data to all. */
  send(data: unknown): void;
}

/** Opens none as yet. */
export function openStreams(): Streams {
  const pages = new Set<ReadableStreamDefaultController<Uint8Array>>();
  const encoder = new TextEncoder();
  const encode = (data: unknown) => encoder.encode(`data: ${JSON.stringify(data)}\n\n`);
  const leave = (page: ReadableStreamDefaultController<Uint8Array>) => {
    if (!pages.delete(page)) return;
    page.close();
  };
  const sendBytes = (bytes: Uint8Array) => {
    for (const page of pages) {
      page.enqueue(bytes);
      if (page.desiredSize! < 0) leave(page);
    }
  };
  const alive = setInterval(() => sendBytes(encoder.encode(": alive\n\n")), ALIVE_EVERY_MS);
  Deno.unrefTimer(alive);
  return {
    get size() {
      return pages.size;
    },
    open(first) {
      if (pages.size >= PAGES_MAX) return undefined;
      let opened: ReadableStreamDefaultController<Uint8Array>;
      return new ReadableStream({
        start(page) {
          opened = page;
          page.enqueue(encoder.encode(`retry: ${AGAIN_MS}\n`));
          page.enqueue(encode(first));
          pages.add(page);
        },
        cancel: () => void pages.delete(opened),
      }, { highWaterMark: WAITING_BYTES_MAX, size: (bytes) => bytes!.byteLength });
    },
    send: (data) => sendBytes(encode(data)),
    [Symbol.dispose]() {
      clearInterval(alive);
      pages.forEach(leave);
    },
  };
}

const HOST = "127.0.0.1";
/** How often pages are told what is new. */
const TELL_EVERY_MS = 250;
/** Telling may take one part in so many of the time, whatever there is to tell. */
const TELLING_SHARE = 100;
/** How long the last news may take to arrive. */
const LAST_NEWS_MS = 1000;

/** A page that is served. */
export interface Dashboard extends AsyncDisposable {
  /** Where it is. */
  readonly url: string;
  /** Waits until whoever looks has had enough. */
  stay(signal: AbortSignal): Promise<void>;
}

/**
 * Serves the page of a view until it is disposed of: open pages then have all that there is to tell.
 *
 * @param port 0 takes any that is free.
 * @throws {RangeError} when the port is taken.
 */
export function serveDashboard(view: Pick<RunView, "all" | "news">, port: number): Dashboard {
  const token = Array.from(
    crypto.getRandomValues(new Uint8Array(16)),
    (byte) => byte.toString(16).padStart(2, "0"),
  ).join("");
  const events = () => {
    const stream = streams.open(view.all());
    return stream
      ? answer(200, "text/event-stream", stream)
      : answer(503, TEXT, "Too many pages are open.\n");
  };
  const server = listen(port, (request) => {
    const { port } = server.addr as Deno.NetAddr, host = request.headers.get("host");
    if (host !== `${HOST}:${port}` && host !== `localhost:${port}`) {
      return answer(421, TEXT, "Asked under another name.\n");
    }
    if (request.method !== "GET") return answer(405, TEXT, "Reading only.\n", { allow: "GET" });
    const pathname = URL.parse(request.url)?.pathname, base = `/${token}/`;
    if (!pathname?.startsWith(base)) return answer(404, TEXT, "Not here.\n");
    const name = pathname.slice(base.length), file = PAGE_FILES.get(name);
    if (file) return answer(200, file.type, file.text);
    return name === "events" ? events() : answer(404, TEXT, "Not here.\n");
  });
  const streams = openStreams();
  const stopTelling = tellNowAndThen(() => {
    const news = streams.size > 0 ? view.news() : undefined;
    if (news) streams.send(news);
  });
  return {
    url: `http://${HOST}:${(server.addr as Deno.NetAddr).port}/${token}/`,
    stay: (signal) =>
      new Promise((resolve) => {
        if (signal.aborted) resolve();
        signal.addEventListener("abort", () => resolve(), { once: true });
      }),
    async [Symbol.asyncDispose]() {
      stopTelling();
      const news = view.news();
      if (news) streams.send(news);
      streams[Symbol.dispose]();
      server.unref();
      // Whoever does not read any more is not waited for.
      await deadline(server.shutdown(), LAST_NEWS_MS).catch(() => {});
    },
  };
}

const TEXT = "text/plain; charset=utf-8";

/** Nothing from elsewhere, nothing for others, nothing kept. */
const GUARDS = {
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
  new Response(body, { status, headers: { ...GUARDS, "content-type": type, ...more } });

function listen(port: number, handler: Deno.ServeHandler): Deno.HttpServer {
  try {
    return Deno.serve({ hostname: HOST, port, onListen: () => {} }, handler);
  } catch (error) {
    const why = error instanceof Deno.errors.AddrInUse
      ? "one that no other program has"
      : error instanceof Deno.errors.PermissionDenied
      ? "one that this program may have"
      : undefined;
    if (!why) throw error;
    throw new RangeError(`Cannot serve the dashboard: its port must be ${why}, received ${port}`);
  }
}

/** Calls a function again and again, so that it takes but a share of the time; returns its end. */
function tellNowAndThen(tell: () => void): () => void {
  let timer: ReturnType<typeof setTimeout>;
  const again = (afterMs: number) => {
    timer = setTimeout(() => {
      const began = performance.now();
      tell();
      again(Math.max(TELL_EVERY_MS, TELLING_SHARE * (performance.now() - began)));
    }, afterMs);
    Deno.unrefTimer(timer);
  };
  again(TELL_EVERY_MS);
  return () => clearTimeout(timer);
}
