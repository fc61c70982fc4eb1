/**
 * Data: texts, digits, tokenizers, and their cut into micro-batches.
 *
 * @module
 */

export { bytesTokenizerJson, gpt2TokenizerJson } from "./byte_level.ts";
export * from "./digit_strings.ts";
export * from "./digits.ts";
export * from "./held_out.ts";
export * from "./noisy_digits.ts";
export * from "./order.ts";
export * from "./rows.ts";
export * from "./text.ts";
export * from "./text_stream.ts";
export * from "./token_batches.ts";
export {
  type KnownTokens,
  knowTokens,
  openTokenFile,
  type TokenFile,
  type TokenReader,
} from "./token_file.ts";
export { bytesTokenizer, gpt2Tokenizer, type Tokenizer, type TokenizerName } from "./tokenizer.ts";
export * from "./tokenizer_json/tokenizer_json.ts";
export * from "./tokens.ts";
