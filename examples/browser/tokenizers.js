// What turns text into token ids, and ids into bytes of text.

/** By the names that a model's file tells. */
export const TOKENIZERS = {
  bytes: () => ({
    encode: (text) => [...new TextEncoder().encode(text)],
    bytesOf: (id) => Uint8Array.of(id < 256 ? id : 0xff),
  }),
  async gpt2() {
    const [{ encode }, { default: tokens }] = await Promise.all(
      ["encoding", "bpeRanks"].map((name) => import(`./gpt-tokenizer/${name}/r50k_base.js`)),
    );
    const bytesOf = (id) => {
      const token = tokens[id] ?? "\uFFFD";
      return typeof token === "string" ? new TextEncoder().encode(token) : Uint8Array.from(token);
    };
    return { encode: (text) => encode(text), bytesOf };
  },
  /** Ids in and out, where nobody can say what they mean. */
  none: () => ({
    encode: (text) => text.split(",").map(Number),
    bytesOf: (id) => new TextEncoder().encode(`,${id}`),
  }),
};
