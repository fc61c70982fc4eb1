/**
 * The transformers that the papers train: their sizes, and what follows from them.
 *
 * @module
 */

/** A transformer as a paper describes it. */
export interface PaperModel {
  /** What the paper calls it. */
  readonly name: string;
  /** Where the paper describes it. */
  readonly source: string;
  /** Layers, l. */
  readonly layers: number;
  /** Numbers of a token within the model, h. */
  readonly hidden: number;
  /** Attention heads, a. */
  readonly heads: number;
  /** Tokens of a sample, s. */
  readonly sequence: number;
  /** Tokens that there are, V. */
  readonly vocabulary: number;
  /** Positions that are learned. */
  readonly positions: number;
  /** Trained numbers of the input side beside the table of tokens and positions. */
  readonly moreInput?: number;
  /** Trained numbers of the output side: a table of its own, and what goes before it. */
  readonly output: number;
  /** Bytes of an activation: 4, or 2 in mixed precision. */
  readonly bytes: 2 | 4;
}

const BERT_VOCABULARY = 30_522, GPT_VOCABULARY = 50_257;

/**
 * Bert-48 (Chimera, Table 4). The paper gives 48 layers and 669,790,012 parameters: BERT-large's
 * width, its pooler, and the two heads of its pre-training with a table of their own.
 */
export const BERT_48: PaperModel = {
  name: "Bert-48",
  source: "Chimera, Table 4: 48 layers, 669,790,012 parameters, sequences of 128 (section 4)",
  layers: 48,
  hidden: 1024,
  heads: 16,
  sequence: 128,
  vocabulary: BERT_VOCABULARY,
  positions: 512,
  moreInput: 2 * 1024 + 2 * 1024,
  output: (1024 + 1) * 1024 * 2 + 2 * 1024 + (1024 + 1) * BERT_VOCABULARY + 2 * 1024 + 2,
  bytes: 4,
};

/** GPT-2 of 64 layers (Chimera, Table 4): GPT-2 large's width, a head with a table of its own. */
export const GPT2_64: PaperModel = {
  name: "GPT-2",
  source: "Chimera, Table 4: 64 layers, 1,389,327,360 parameters, sequences of 632 (section 4)",
  layers: 64,
  hidden: 1280,
  heads: 20,
  sequence: 632,
  vocabulary: GPT_VOCABULARY,
  positions: 1024,
  output: 2 * 1280 + 1280 * GPT_VOCABULARY,
  bytes: 4,
};

/** Hanayo's models (section 5): layers, heads and width are stated; the rest is assumed. */
const hanayoModel = (name: string, layers: number, heads: number, hidden: number): PaperModel => ({
  name,
  source: `Hanayo, section 5: ${layers} layers, ${heads} heads, hidden size ${hidden}; ` +
    "sequences of 512 and 16-bit activations are assumed",
  layers,
  hidden,
  heads,
  sequence: 512,
  vocabulary: BERT_VOCABULARY,
  positions: 512,
  output: 2 * hidden,
  bytes: 2,
});

/** Hanayo's BERT-style model. */
export const HANAYO_BERT: PaperModel = hanayoModel("BERT-style", 64, 64, 2560);

/** AxoNN's models (Table I), by their billions of parameters; V and s are of section VI-C. */
const axonnModel = (billions: number, layers: number, hidden: number, heads: number) => ({
  name: `${billions} billion`,
  source: "AxoNN, Table I; section VI-C: sequences of 512, a vocabulary of 51,200",
  layers,
  hidden,
  heads,
  sequence: 512,
  vocabulary: 51_200,
  positions: 512,
  output: 2 * hidden,
  bytes: 2 as const,
});

/** AxoNN's transformers of Table I. */
export const AXONN_MODELS: Readonly<Record<12 | 24 | 50 | 100, PaperModel>> = {
  12: axonnModel(12, 48, 4512, 24),
  24: axonnModel(24, 48, 6336, 36),
  50: axonnModel(50, 96, 6528, 48),
  100: axonnModel(100, 96, 9360, 60),
};

/** Trained numbers of one layer: four square matrices of attention and eight of the MLP. */
export const layerParameters = ({ hidden }: PaperModel): number => 12 * hidden ** 2 + 13 * hidden;

/** Trained numbers of the input side. */
export const inputParameters = (model: PaperModel): number =>
  (model.vocabulary + model.positions) * model.hidden + (model.moreInput ?? 0);

/** All trained numbers. */
export const parametersOf = (model: PaperModel): number =>
  model.layers * layerParameters(model) + inputParameters(model) + model.output;

/** Floating-point operations of one layer's forward for so many samples. */
export const layerFlops = ({ hidden, sequence }: PaperModel, samples: number): number =>
  samples * sequence * (24 * hidden ** 2 + 4 * sequence * hidden);

/** Floating-point operations of the head's forward for so many samples. */
export const headFlops = ({ hidden, sequence, vocabulary }: PaperModel, samples: number): number =>
  2 * samples * sequence * hidden * vocabulary;

/**
 * Bytes that one layer keeps from its forward to its backward: 16 activations and two masks of a byte
 * for each number of a token, two activations and a mask for each pair of tokens and head, by the
 * count of Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
 * section 4.
 */
export const layerBytes = ({ hidden, heads, sequence, bytes }: PaperModel, samples: number) =>
  samples * sequence * (hidden * (16 * bytes + 2) + heads * sequence * (2 * bytes + 1));

/** Bytes of the activation between two layers. */
export const edgeBytes = ({ hidden, sequence, bytes }: PaperModel, samples: number): number =>
  samples * sequence * hidden * bytes;
