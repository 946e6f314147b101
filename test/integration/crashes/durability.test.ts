import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";
import { firstToolValue, fixture, oneToolCall, plugin, startTroupe, tempFolder } from "../../support/runtime.js";

test("every turn acknowledged before kill -9 is there afterwards, with the plugin's state of that turn", async () => {
  const path = await tempFolder();
  const options = { store: { path }, plugins: [{ module: plugin("counter") }], model: oneToolCall("count") };
  let acknowledged = 0;
  for (let round = 1; round <= 3; round++) {
    const program = spawn(process.execPath, [fixture("programs/turns-until-killed.mjs").pathname, path], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    for await (const line of createInterface({ input: program.stdout })) {
      acknowledged = Number(line);
      if (acknowledged >= round * 15) break;
    }
    program.kill("SIGKILL");
    await once(program, "exit");
  }
  const troupe = await startTroupe(options);
  const session = await troupe.session("s");
  const result = await session.turn("once more");
  // What was answered is stored. The one turn in flight is too, or goes on from its journal, or is not.
  expect([acknowledged + 1, acknowledged + 2]).toContain(result.turnIndex);
  expect(firstToolValue(result)).toBe(result.turnIndex);
});
