/**
 * Calls of a C API that is a table of functions, most of which return null or an error status.
 *
 * @module
 */

/** A pointer to an object of the C API. */
export type Handle = Deno.PointerObject;

/** Bytes of a pointer. */
export const POINTER_BYTES = 8;

type Types = readonly Deno.NativeType[];
type Arguments<P extends Types> = Deno.ToNativeParameterTypes<P>;

/** A zero-terminated string. */
export const cString = (text: string): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(`${text}\0`);

/** An array of pointers, as bytes. What they point to must be kept as long as it is read. */
export const pointers = (
  handles: readonly (Handle | Uint8Array<ArrayBuffer>)[],
): Uint8Array<ArrayBuffer> =>
  new Uint8Array(
    BigUint64Array.from(
      handles,
      (one) =>
        Deno.UnsafePointer.value(one instanceof Uint8Array ? Deno.UnsafePointer.of(one) : one),
    ).buffer,
  );

/** The functions of a table by slot. Those that return a status throw its text as an `Error`. */
export interface FunctionTable {
  /** A function that frees an object. */
  release(slot: number): (handle: Handle) => void;
  /** A function that returns a pointer to a string, and no status. */
  text<const P extends Types>(slot: number, parameters: P): (...args: Arguments<P>) => string;
  /** A function that returns a status. */
  sync<const P extends Types>(slot: number, parameters: P): (...args: Arguments<P>) => void;
  /** A function that returns a status, called on the thread pool of blocking calls. */
  async<const P extends Types>(
    slot: number,
    parameters: P,
  ): (...args: Arguments<P>) => Promise<void>;
}

/**
 * Wraps the table at `table`.
 *
 * @param getMessage slot of the function that gives the text of a status.
 * @param releaseStatus slot of the function that frees a status.
 */
export function functionTable(
  table: Handle,
  getMessage: number,
  releaseStatus: number,
): FunctionTable {
  const view = new Deno.UnsafePointerView(table);
  const pointer = (slot: number) => view.getPointer(slot * POINTER_BYTES)! as never;
  const release = (slot: number): (handle: Handle) => void => {
    const fn = new Deno.UnsafeFnPointer(pointer(slot), { parameters: ["pointer"], result: "void" });
    return (handle) => fn.call(handle);
  };
  const messageOf = new Deno.UnsafeFnPointer(pointer(getMessage), {
    parameters: ["pointer"],
    result: "pointer",
  });
  const free = release(releaseStatus);
  const check = (status: Deno.PointerValue): void => {
    if (!status) return;
    const text = Deno.UnsafePointerView.getCString(messageOf.call(status)!);
    free(status);
    throw new Error(text);
  };
  return {
    release,
    text(slot, parameters) {
      const fn = new Deno.UnsafeFnPointer(pointer(slot), { parameters, result: "pointer" });
      return (...args) => Deno.UnsafePointerView.getCString(fn.call(...args as never)!);
    },
    sync(slot, parameters) {
      const fn = new Deno.UnsafeFnPointer(pointer(slot), { parameters, result: "pointer" });
      return (...args) => check(fn.call(...args as never));
    },
    async(slot, parameters) {
      const definition = { parameters, result: "pointer", nonblocking: true } as const;
      const fn = new Deno.UnsafeFnPointer(pointer(slot), definition);
      return async (...args) =>
        check(await (fn.call(...args as never) as Promise<Deno.PointerValue>));
    },
  };
}
