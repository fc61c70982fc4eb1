/**
 * Built-in modules of Node. They are not imported, so that pages, which have none, can load the modules
 * that use them.
 *
 * @module
 */

const get: typeof process.getBuiltinModule | undefined = globalThis.process?.getBuiltinModule;

/** Returns a built-in module; an empty object in a page, where none of its functions is called. */
export const builtin = ((name: string) => get?.(name) ?? {}) as typeof process.getBuiltinModule;
