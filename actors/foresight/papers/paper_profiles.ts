/**
 * The profiles of the papers' machines, by the names that their files get.
 *
 * @module
 */

import type { Profile } from "../profile/profile.ts";
import { PIZ_DAINT, V100_CLUSTER } from "./machines/gloo_clusters.ts";
import { HANAYO_MACHINES } from "./machines/hanayo_clusters.ts";
import type { PaperMachine } from "./machines/paper_machine.ts";
import { SUMMIT } from "./machines/summit.ts";
import { statedProfile } from "./paper_profile.ts";
import { AXONN_MODELS, BERT_48, GPT2_64, HANAYO_BERT, type PaperModel } from "./transformer.ts";

const MICRO_BATCHES = [1, 2, 4, 8, 16, 32];

const CLUSTERS = ["a100_pairs", "a100_full", "lonestar6", "v100_cloud"];

/** Each machine with each model that its paper trains there. */
export function paperProfiles(): Map<string, Profile> {
  const named: [string, PaperMachine, PaperModel][] = [
    ["piz_daint_bert_48", PIZ_DAINT, BERT_48],
    ["piz_daint_gpt_2", PIZ_DAINT, GPT2_64],
    ["v100_bert_48", V100_CLUSTER, { ...BERT_48, sequence: 512 }],
    ...Object.entries(AXONN_MODELS).map(([billions, model]): [string, PaperMachine, PaperModel] => [
      `summit_${billions}_billion`,
      SUMMIT,
      model,
    ]),
    ...HANAYO_MACHINES.map((machine, i): [string, PaperMachine, PaperModel] => [
      `${CLUSTERS[i]}_bert`,
      machine,
      HANAYO_BERT,
    ]),
  ];
  return new Map(
    named.map(([name, machine, model]) => [name, statedProfile(machine, model, MICRO_BATCHES)]),
  );
}
