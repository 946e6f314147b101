import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { RESIDENT, startTroupe } from "../../support/runtime.js";

test("sessions on workers that are still starting are opened and served once those are there", async () => {
  const troupe = await startTroupe({ sessionWorkers: 4, ...RESIDENT });
  const ids = Array.from({ length: 12 }, (_, n) => `session-${n}`);
  const texts = await Promise.all(ids.map(async (id) => (await (await troupe.session(id)).turn("hi")).text));
  expect(texts).toEqual(ids.map(() => "You said: hi"));
  const { workers, sessions } = await troupe.stats();
  expect(sessions.resident).toBe(12);
  expect(workers.filter(({ sessions }) => sessions > 0).length).toBeGreaterThan(1);
  expect(workers.map(({ restarts }) => restarts)).toEqual([0, 0, 0, 0]);
});

test("a runtime that is closed while workers are still starting leaves no handle behind", async () => {
  const program = `
    import { createTroupe } from "troupe";
    const troupe = await createTroupe({ sessionWorkers: 4 });
    await troupe.close();
    console.log(JSON.stringify(process.getActiveResourcesInfo().filter((name) => name !== "PipeWrap")));`;
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: fileURLToPath(new URL("../../..", import.meta.url)),
  });
  expect({ stdout, stderr }).toEqual({ stdout: "[]\n", stderr: "" });
});
