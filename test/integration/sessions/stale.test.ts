import { expect, test } from "vitest";
import { openLmdb } from "../../../dist/src/store/index.js";
import { plugin, RESIDENT, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

// turn §8.38
test("a session whose commit was refused is opened anew: the next turn goes on from what is stored", async () => {
  const path = await tempFolder();
  const troupe = await startTroupe({
    ...RESIDENT, // One that was parked would be opened from what the other stored, and not be stale.
    sessionWorkers: 1,
    store: { path },
    plugins: [{ module: plugin("counter") }],
  });
  const session = await troupe.session("s");
  await session.turn("one");
  // Somebody else moves the head on, as a second owner of the store would.
  const other = openLmdb(path);
  const head = other.head("s");
  if (head === undefined) throw new Error("the first turn is not stored");
  const epoch = other.claim("s", { owner: "a test", take: "always" });
  const moved = { ...head, revision: 2, operation: "elsewhere" };
  const commit = { head: moved, expectedRevision: 1, epoch, components: [] };
  other.write([{ kind: "commit", commit }]);
  const error = await refusalOf(session.turn("two"));
  expect([error.code, error.retryable]).toEqual(["head_conflict", true]);
  expect((await session.turn("three")).revision).toBe(3);
});
