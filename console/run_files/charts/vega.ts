/**
 * Vega and Vega-Lite, which draw charts: fetched from npm when the first is drawn, and used only when
 * they are what they were when their hashes were pinned.
 *
 * @module
 */

import type { Announce } from "../../../kernels/mod.ts";
import { pinnedPackage } from "../../../kernels/data/npm_packages.ts";

const PACKAGES = [
  {
    ...{ name: "vega", version: "6.4.0", megabytes: 9 },
    ...{ json: "vega-schema.json", folder: "" },
    files: /^vega\.min\.js$/,
    sha256: "75ca848c7f17f5997aad16f6a7027e04b36d3254389e3dce97089c1ef39c9508",
  },
  {
    ...{ name: "vega-lite", version: "6.5.0", megabytes: 8 },
    ...{ json: "vega-lite-schema.json", folder: "" },
    files: /^vega-lite\.min\.js$/,
    sha256: "76e116de5e1ca737a117972980c6f9da412d32a3173279a6a21232232d295127",
  },
] as const;

/** What is used of them. Each script makes itself a name of this isolate, by which it is found. */
interface VegaGlobals {
  readonly vega: {
    parse(spec: unknown): unknown;
    View: new (runtime: unknown, options: { readonly renderer: "none" }) => {
      toSVG(): Promise<string>;
      finalize(): void;
    };
  };
  readonly vegaLite: { compile(spec: unknown): { readonly spec: unknown } };
}

/**
 * Draws a chart.
 *
 * @param spec as Vega-Lite takes it.
 * @param announce told before something is fetched.
 * @returns the picture as SVG.
 * @throws {Error} when the packages are neither cached nor to be had from the registry.
 */
export async function drawSvg(spec: unknown, announce?: Announce): Promise<string> {
  for (const pinned of PACKAGES) {
    const { folder, paths: [script] } = await pinnedPackage(pinned, announce);
    await import(new URL(script!, folder).href);
  }
  const { vega, vegaLite } = globalThis as unknown as VegaGlobals;
  const view = new vega.View(vega.parse(vegaLite.compile(spec).spec), { renderer: "none" });
  try {
    return await view.toSVG();
  } finally {
    view.finalize();
  }
}
