/**
 * Actors of packages: inspected and hashed before they run, and held in processes of their own.
 *
 * @module
 */

export {
  type ActorDefinition,
  checkDefinition,
  defineActor,
  type PackageContext,
  type Permissions,
  type Schema,
  type Schemas,
} from "./define.ts";
export { packageActor, type SandboxOptions, STEP_LIMIT_MS } from "./host.ts";
export {
  inspectActor,
  type InspectedActor,
  inspectHashed,
  type InspectOptions,
} from "./inspect.ts";
export {
  type GraphModule,
  type GraphOptions,
  type HashedModule,
  hashModule,
  type Lock,
  type ModuleGraph,
  type NpmPackage,
} from "./modules.ts";
