/**
 * A lint plugin that checks that actors are deterministic.
 *
 * A file with actors (it contains the name `ActorFactory`) must not use the globals that a
 * simulation forbids. An exception needs an ignore comment with a reason; a comment without a
 * reason is reported:
 *
 * `// deno-lint-ignore determinism/no-ambient -- measures the kernel and nothing depends on it`
 *
 * @module
 */

import {
  FORBIDDEN_GLOBALS,
  FORBIDDEN_MODULES,
  type ForbiddenGlobal,
} from "../actors/simulation/determinism_guard.ts";

const WORLD = new Map(FORBIDDEN_GLOBALS.map((forbidden) => [forbidden.token, forbidden]));

/** Objects with forbidden members: `Temporal.Now`, `performance`. */
const OWNERS = new Set(
  FORBIDDEN_GLOBALS.map(({ token }) => token.slice(0, token.lastIndexOf("."))).filter((owner) =>
    owner
  ),
);

/** Prefixes of the global object: `globalThis.fetch` is `fetch`. */
const GLOBALS = /^(globalThis|self|window)\./;

/** Names reported on any object, because types are unknown here: the property `timeStamp`, and
 * `format()` in files that format dates. */
const TIME_STAMP = WORLD.get("Event.timeStamp")!, FORMAT = /^format(ToParts)?$/;
const FORMATS_DATES = /\bDateTimeFormat\b/;

const MAKES_ACTORS = /\bActorFactory\b/;

/** Matches an ignore comment for a rule of this plugin, and captures the text after it. */
const IGNORE = /^\s*deno-lint-ignore(-file)?\s[^-]*\bdeterminism\/[\w-]+(?<rest>.*)$/s;

/** Returns the dotted name of an expression, such as `Temporal.Now.instant`, or undefined. */
function nameOf(node: Deno.lint.Node): string | undefined {
  if (node.type === "Identifier") return node.name;
  // The types of TypeScript change no value: `(Date as Any).now`, `Date!.now`.
  if (node.type.startsWith("TS") && "expression" in node) {
    return nameOf(node.expression as Deno.lint.Node);
  }
  if (node.type !== "MemberExpression") return undefined;
  const owner = nameOf(node.object);
  if (owner === undefined) return undefined;
  const { property } = node;
  if (!node.computed && property.type === "Identifier") return `${owner}.${property.name}`;
  return property.type === "Literal" && typeof property.value === "string"
    ? `${owner}.${property.value}`
    : undefined;
}

/** Returns true if a node is a test, which is not part of an actor. */
function isTest(node: Deno.lint.Node): boolean {
  return node.type === "CallExpression" && nameOf(node.callee) === "Deno.test";
}

/** Yields the forbidden imports from Node.js: names or whole modules. */
function* forbiddenImports({ source, importKind, specifiers }: Deno.lint.ImportDeclaration) {
  const forbidden = FORBIDDEN_MODULES.get(source.value);
  if (!forbidden || importKind === "type") return;
  const { instead, names } = forbidden;
  for (const specifier of specifiers) {
    const isNamed = specifier.type === "ImportSpecifier";
    if (isNamed && specifier.importKind === "type") continue;
    const name = isNamed && "name" in specifier.imported ? specifier.imported.name : "";
    if (names && !names.includes(name)) continue;
    yield { specifier, token: name === "" ? source.value : `${source.value}.${name}`, instead };
  }
}

const noAmbient: Deno.lint.Rule = {
  create(context) {
    const text = context.sourceCode.text;
    if (!MAKES_ACTORS.test(text)) return {};
    // Whether the file declares or imports a name, which hides the global.
    const isDeclared = (name: string) =>
      new RegExp(
        `\\b(?:const|let|var|function|class)\\s+${name}\\b|import[^;]*[{,\\s]${name}\\s*[,}\\s][^;]*from`,
      ).test(text);
    const report = (node: Deno.lint.Node, { token, instead }: Omit<ForbiddenGlobal, "kind">) => {
      if (context.sourceCode.getAncestors(node).some(isTest)) return;
      context.report({
        node,
        message: `\`${token}\` is not the same in every run of an actor: ${instead}`,
      });
    };
    const find = (node: Deno.lint.Node) => {
      const name = nameOf(node)?.replace(GLOBALS, "");
      const forbidden = name === undefined ? undefined : WORLD.get(name);
      return forbidden && !isDeclared(name!.split(".")[0]!) ? forbidden : undefined;
    };
    const look = (node: Deno.lint.Node, isConstructed = false, count = 0) => {
      const forbidden = find(node), isMember = node.type === "MemberExpression";
      // Properties and functions of objects are reported wherever they are named, below.
      if (!forbidden || forbidden.kind === "get" || isMember && forbidden.kind !== "date") return;
      // A date made from an argument is a plain value.
      if (forbidden.kind === "date" && isConstructed && count > 0) return;
      report(node, forbidden);
    };
    const lookAtFormat = (node: Deno.lint.CallExpression) => {
      const { callee, arguments: { length } } = node;
      if (length > 0 || callee.type !== "MemberExpression" || !FORMATS_DATES.test(text)) return;
      if (callee.property.type !== "Identifier" || !FORMAT.test(callee.property.name)) return;
      report(node, WORLD.get(`Intl.DateTimeFormat.${callee.property.name}`)!);
    };
    return {
      NewExpression: (node) => look(node.callee, true, node.arguments.length),
      CallExpression(node) {
        look(node.callee);
        lookAtFormat(node);
      },
      MemberExpression(node) {
        const { object, property } = node;
        const owner = object.type === "Identifier" ? find(object) : undefined;
        const forbidden = owner?.kind === "get" ? owner : find(node);
        // `process.hrtime` is reported as part of `process.hrtime.bigint`.
        if (node.parent.type === "MemberExpression" && find(node.parent)) return;
        if (forbidden && ["call", "new", "get"].includes(forbidden.kind)) report(node, forbidden);
        else if (property.type === "Identifier" && property.name === "timeStamp") {
          report(node, TIME_STAMP);
        }
      },
      ImportDeclaration(node) {
        for (const { specifier, ...forbidden } of forbiddenImports(node)) {
          report(specifier, forbidden);
        }
      },
      // `const { now } = performance` copies the function before the guard replaces it.
      VariableDeclarator(node) {
        if (!node.init) return;
        const owner = nameOf(node.init)?.replace(GLOBALS, "");
        if (node.id.type !== "ObjectPattern") return look(node.init);
        if (!owner || !OWNERS.has(owner) || isDeclared(owner.split(".")[0]!)) return;
        for (const property of node.id.properties) {
          if (property.type !== "Property" || property.key.type !== "Identifier") continue;
          const forbidden = WORLD.get(`${owner}.${property.key.name}`);
          if (forbidden) report(property, forbidden);
        }
      },
    };
  },
};

const reasonedIgnore: Deno.lint.Rule = {
  create: (context) => ({
    Program() {
      for (const comment of context.sourceCode.getAllComments()) {
        const rest = IGNORE.exec(comment.value)?.groups?.["rest"];
        if (rest === undefined || /--\s*\S+/.test(rest)) continue;
        context.report({
          range: comment.range,
          message:
            "An exception from determinism must give its reason: `-- why nothing depends on it`",
        });
      }
    },
  }),
};

// The linter takes a plugin as the default export and in no other way.
export default {
  name: "determinism",
  rules: { "no-ambient": noAmbient, "reasoned-ignore": reasonedIgnore },
} satisfies Deno.lint.Plugin;
