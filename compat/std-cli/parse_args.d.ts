export interface ParseOptions {
  string?: readonly string[];
  boolean?: readonly string[];
  alias?: Readonly<Record<string, string | readonly string[]>>;
  default?: Readonly<Record<string, unknown>>;
  collect?: readonly string[];
  negatable?: readonly string[];
  stopEarly?: boolean;
  "--"?: boolean;
  unknown?: (arg: string, key?: string, value?: unknown) => unknown;
}
// deno-lint-ignore no-explicit-any
export declare function parseArgs(args: string[], options?: ParseOptions): Record<string, any> & {
  _: (string | number)[];
};
