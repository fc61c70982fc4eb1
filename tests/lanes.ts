/**
 * Runs a task on each item, a few at a time, in order. After a failure no other item begins, and the
 * failure is thrown once all that began have ended.
 */
export async function inLanes<T>(
  items: Iterable<T>,
  run: (item: T, lane: number) => Promise<void>,
  lanes = 4,
): Promise<void> {
  const left = [...items], failures: unknown[] = [];
  await Promise.all(Array.from({ length: lanes }, async (_, lane) => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) {
      await run(item, lane).catch((error) => failures.push(error) && left.splice(0));
    }
  }));
  if (failures.length > 0) throw failures[0];
}
