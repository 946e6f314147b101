import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { fixture } from "../../support/runtime.js";

/** Longer than the deadline of the program's plugin, which counts only while the process runs. */
const STOPPED_MS = 2_000;

test("a process that was stopped for longer than its hooks' deadline goes on, and no hook is late", async () => {
  const child = spawn(process.execPath, [fileURLToPath(fixture("programs/turns-at-once.mjs"))], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line);
    if (line !== "asked") continue;
    child.kill("SIGSTOP");
    setTimeout(() => child.kill("SIGCONT"), STOPPED_MS);
  }
  expect(lines).toEqual(["asked", "finished finished finished finished finished"]);
});
