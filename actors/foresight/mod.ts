/**
 * Foresight: what a machine costs, and what that says of runs that have not been.
 *
 * @module
 */

export { type ModelRow, modelsTable } from "./papers/models_table.ts";
export { papersTable } from "./papers/papers_table.ts";
export { isMiss, type PaperName, type PaperRow } from "./papers/rows/paper_row.ts";
export { type CutRun, type RecommendedLayout, recommendLayout } from "./partition.ts";
export { type Prediction, type PredictOptions, predictStep } from "./predict.ts";
export * from "./profile/profile.ts";
export * from "./profile/read_profile.ts";
