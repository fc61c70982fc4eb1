/**
 * The adapter of tests: SwiftShader, which Debian's package chromium carries, so that the results do
 * not depend on a machine. A process has one isolate that uses it, so tests that do are in files whose
 * names end in `_alone_test.ts`, or start processes.
 */

const ICD = "/usr/lib/chromium/vk_swiftshader_icd.json";

const exists = (path: string) => {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
};

/** Whether this machine has SwiftShader. */
export const hasSwiftShader = exists(ICD);

/** What lets a process see SwiftShader, and nothing else. */
export const SWIFTSHADER: Readonly<Record<string, string>> = { VK_DRIVER_FILES: ICD };

if (hasSwiftShader) {
  for (const [name, value] of Object.entries(SWIFTSHADER)) Deno.env.set(name, value);
}

/** Registers a test that needs the adapter; where there is none it is skipped, by its name. */
export function gpuTest(name: string, fn: (t: Deno.TestContext) => Promise<void> | void): void {
  Deno.test({ name, ignore: !hasSwiftShader, fn });
}
