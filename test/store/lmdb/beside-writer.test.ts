import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { checkDatabaseFile } from "../../../src/store/lmdb/file/file.js";
import { temporaryFolder } from "../commits.js";

test("a reader that opens a store while somebody writes it does not take it for damaged", async () => {
  const path = join(temporaryFolder(), "store");
  const program = fileURLToPath(new URL("../fixtures/commit-forever.mjs", import.meta.url));
  const writer = spawn(process.execPath, [program, path], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void writer.kill("SIGKILL"));
  await once(writer.stdout, "data");
  writer.stdout.resume();
  const refusals: unknown[] = [];
  for (let n = 0; n < 20_000; n++) {
    try {
      checkDatabaseFile(path, { readOnly: true });
    } catch (error) {
      refusals.push(error);
    }
  }
  expect(refusals).toEqual([]);
});
