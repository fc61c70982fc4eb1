/**
 * The permissions of a child process: exactly those of this program, or there is no child.
 *
 * [Note: what a program knows of its permissions] Deno tells of each kind whether it is granted,
 * denied or neither, and whether parts of a granted kind are denied; it tells nobody which parts.
 * So a kind that is denied in part cannot be handed on. Neither can one that is granted in part,
 * which looks as if it were not granted: a process gets nothing of it. The kinds that a process
 * cannot do without must therefore be granted as a whole.
 *
 * @module
 */

/** What a process needs to be started, and to meet others. */
const NEEDED = ["run", "read", "write", "net"] as const;

const OTHERS = ["env", "sys", "ffi", "import"] as const;

/**
 * The flags of a child process.
 *
 * @throws {Deno.errors.NotCapable} when it would get other permissions than this program.
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
