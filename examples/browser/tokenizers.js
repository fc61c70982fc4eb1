// What turns text into token ids, and ids into text.

const utf8 = (bytes) => new TextDecoder().decode(Uint8Array.from(bytes));

/** By the names that a model's file tells. */
export const TOKENIZERS = {
  bytes: () => ({
    encode: (text) => [...new TextEncoder().encode(text)],
    decode: (ids) => utf8(ids.map((id) => id < 256 ? id : 0xff)),
  }),
  async gpt2() {
    const [{ encode }, { default: tokens }] = await Promise.all(
      ["encoding", "bpeRanks"].map((name) => import(`./gpt-tokenizer/${name}/r50k_base.js`)),
    );
    const bytesOf = (token = "\uFFFD") =>
      typeof token === "string" ? [...new TextEncoder().encode(token)] : token;
    return {
      encode: (text) => encode(text),
      decode: (ids) => utf8(ids.flatMap((id) => bytesOf(tokens[id]))),
    };
  },
  /** The file `tokenizer.json` next to the model, in the format of Hugging Face's tokenizers. */
  async "tokenizer.json"() {
    const { Tokenizer } = await import("@huggingface/tokenizers");
    const { applyRules, splittingSpaces } = await import("./tokenizer_rules.js");
    const file = await fetch("tokenizer.json");
    if (!file.ok) {
      throw new TypeError("the tokenizer.json of its run must lie beside it, received none");
    }
    const json = await file.json();
    json.pre_tokenizer &&= splittingSpaces(json.pre_tokenizer);
    applyRules();
    const tokenizer = new Tokenizer(json, {});
    return {
      encode: (text) => [...tokenizer.encode(text).ids],
      decode: (ids) => tokenizer.decode(ids, { clean_up_tokenization_spaces: false }),
    };
  },
  /** Ids as input and output, for models without a tokenizer. */
  none: () => ({ encode: (text) => text.split(",").map(Number), decode: (ids) => ids.join() }),
};
