import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openLmdb } from "../../../src/store/index.js";
import { commit, dataFile, temporaryFolder, turn, write } from "../commits.js";

function openStore() {
  const path = join(temporaryFolder(), "store");
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  commit(backend, turn("a", 1));
  return { path, commitTurn: (n: number) => write(backend, { kind: "commit", commit: turn("a", n) }) };
}

const refused = (how: string) => [
  { ok: false, error: { code: "store_write_failed", message: expect.stringContaining(`was ${how} while`) } },
];

test("a commit to a store whose folder was removed is refused", () => {
  const { path, commitTurn } = openStore();
  rmSync(path, { recursive: true });
  expect(commitTurn(2)).toMatchObject(refused("removed"));
  // Whoever asks again is not told that it was written before.
  expect(commitTurn(2)).toMatchObject(refused("removed"));
});

test("a commit to a store whose file another one took the place of is refused", () => {
  const { path, commitTurn } = openStore();
  rmSync(path, { recursive: true });
  mkdirSync(path);
  writeFileSync(dataFile(path), "");
  expect(commitTurn(2)).toMatchObject(refused("replaced"));
});

test("a store whose folder was away for a while has everything once it is back", () => {
  const { path, commitTurn } = openStore();
  renameSync(path, `${path}.away`);
  expect(commitTurn(2)).toMatchObject(refused("removed"));
  renameSync(`${path}.away`, path);
  expect(commitTurn(2)).toMatchObject([{ ok: true }]);
  expect(commitTurn(3)).toMatchObject([{ ok: true }]);
});
