/**
 * Streams of news to pages, as server-sent events. A page that does not keep up is let go: it comes
 * again, and is told all anew.
 *
 * @module
 */

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
