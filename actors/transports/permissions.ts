/**
 * Permissions of a child process: exactly those of this program; if that is impossible, no child is
 * started.
 *
 * [Note: partial permissions] Deno reports for each kind of permission whether it is granted,
 * denied or neither, and whether parts of a granted kind are denied; it does not report which
 * parts. So a kind that is denied in part cannot be passed to a child. A kind that is granted in
 * part looks as if it were not granted, so the child gets none of it. The kinds that a child
 * process needs must therefore be granted as a whole.
 *
 * @module
 */

/** Permissions that a child process needs to start and to connect to others. */
const NEEDED = ["run", "read", "write", "net"] as const;

const OTHERS = ["env", "sys", "ffi", "import"] as const;

/**
 * Returns the permission flags for a child process.
 *
 * @throws {Deno.errors.NotCapable} when the child would not get exactly the permissions of this
 * program.
 */
export function permissionFlags(): string[] {
  const kinds = [...NEEDED, ...OTHERS].map((name) => {
    const { state, partial } = Deno.permissions.querySync({ name });
    return { name, state, isPartial: partial === true };
  });
  const problems = kinds.flatMap(({ name, state, isPartial }) => {
    if (isPartial) return [`${name} denied in part`];
    if (!(NEEDED as readonly string[]).includes(name) || state === "granted") return [];
    return [state === "denied" ? `${name} denied` : `${name} not granted as a whole`];
  });
  if (problems.length > 0) {
    throw new Deno.errors.NotCapable(
      `Cannot start a process: it gets the permissions of this program, of which ${
        NEEDED.join(", ")
      } must be granted as a whole and none be denied in part, received ${problems.join(", ")}`,
    );
  }
  if (kinds.every(({ state }) => state === "granted")) return ["-A"];
  return kinds.filter(({ state }) => state !== "prompt").map(({ name, state }) =>
    `--${state === "granted" ? "allow" : "deny"}-${name}`
  );
}
