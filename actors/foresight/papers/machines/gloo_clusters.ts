/**
 * The machines of Chimera's paper, where PyTorch talks by GLOO.
 *
 * @module
 */

import {
  assumed,
  documented,
  fitted,
  GB_PER_S,
  type PaperMachine,
  stated,
  TILE_TOKENS,
  usable,
} from "./paper_machine.ts";

const NO_DISPATCH = assumed(0, "no figure of the paper depends on it");

const gloo = (where: string): Pick<PaperMachine, "link" | "reduceLink" | "isBlocking"> => ({
  isBlocking: assumed(true, "Eq. 1 (section 3.4) adds messages to computation in full"),
  link: {
    value: { latencyMs: 0.05, bytesPerMs: 0.3 * GB_PER_S },
    by: where === "" ? "fitted" : "assumed",
    source: "Chimera, section 4.2.1: the quickest, in steps of 0.05 GB/s, with which DAPPLE and " +
      "GPipe are best with W = 8, D = 4" + where,
  },
  reduceLink: {
    value: { latencyMs: 0.05, bytesPerMs: 2 * GB_PER_S },
    by: where === "" ? "fitted" : "assumed",
    source: "Chimera, section 4.2.3: 1.94× over PipeDream for Bert-48 on 64 nodes" + where,
  },
});

/** Piz Daint: a P100 in each node, Cray's Aries between them, PyTorch with GLOO (Chimera). */
export const PIZ_DAINT: PaperMachine = {
  name: "Piz Daint: P100, Cray Aries",
  gpus: 2048,
  nodeSize: stated(1, "Chimera, section 4"),
  memoryBytes: usable(16, "Chimera, section 4"),
  peakFlops: documented(9.3e12, "NVIDIA Tesla P100 PCIe data sheet: single precision"),
  topShare: assumed(0.6, "matrix products near 80 %, the rest of a layer bound by memory"),
  halfTokens: TILE_TOKENS,
  activationFactor: fitted(
    1.8,
    "Chimera, section 4.2.3: for GPT-2 it needs no recomputation at D = 32, and DAPPLE does",
  ),
  ...gloo(""),
  dispatchMs: NO_DISPATCH,
};

/** Four servers with eight V100 each, NVLink within, InfiniBand between them (Chimera). */
export const V100_CLUSTER: PaperMachine = {
  name: "4 × 8 V100, NVLink, InfiniBand",
  gpus: 32,
  nodeSize: stated(8, "Chimera, section 4"),
  memoryBytes: usable(32, "Chimera, section 4"),
  peakFlops: documented(15.7e12, "NVIDIA Tesla V100 SXM2 data sheet: single precision"),
  topShare: assumed(0.6, "as on the P100"),
  halfTokens: TILE_TOKENS,
  activationFactor: assumed(1.8, "as on the P100"),
  ...gloo("; GLOO goes by way of the host here too"),
  dispatchMs: NO_DISPATCH,
};
