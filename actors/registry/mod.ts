/**
 * Actors and parts of training by name.
 *
 * @module
 */

export { builtInNames } from "./built_in.ts";
export { type Part, PART_KINDS, type PartKind } from "./part.ts";
export {
  checkNewPart,
  type NewPart,
  type PreparedPart,
  preparePart,
  removePart,
} from "./add_part.ts";
export { type Chosen, packageVersion } from "./package_version.ts";
export { openRegistry, type Registry, type Verified } from "./registry.ts";
