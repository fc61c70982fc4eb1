/**
 * Data: texts, digits, tokenizers, and their cut into micro-batches.
 *
 * @module
 */

export * from "./digits.ts";
export * from "./held_out.ts";
export * from "./order.ts";
export * from "./rows.ts";
export * from "./text.ts";
export * from "./text_stream.ts";
export * from "./token_batches.ts";
export * from "./tokenizer.ts";
export * from "./tokens.ts";
