import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { sessionMachine } from "../../../src/session/life/session-machine.js";

/** The chart as a Mermaid state diagram: every way from one state to another, made of the chart's own definition. */
function drawing(): string {
  const { root } = sessionMachine;
  const lines = ["stateDiagram-v2", ...(root.initial.target ?? []).map(({ key }) => `  [*] --> ${key}`)];
  for (const { key, type, transitions } of Object.values(root.states)) {
    if (type === "final") lines.push(`  ${key} --> [*]`);
    for (const { eventType, guard, target = [] } of [...transitions.values()].flat()) {
      const when = typeof guard === "string" ? ` [${guard}]` : "";
      for (const to of target) lines.push(`  ${key} --> ${to.key}: ${eventType}${when}`);
    }
  }
  return lines.join("\n");
}

// `npx vitest run test/session/life/drawing.test.ts -u` draws it anew.
test("docs/sessions.md draws the statechart as it is defined", async () => {
  const page = await readFile(new URL("../../../docs/sessions.md", import.meta.url), "utf8");
  const drawn = page.replace(/(?<=```mermaid\n)[^`]*(?=\n```)/, () => drawing());
  await expect(drawn).toMatchFileSnapshot("../../../docs/sessions.md");
});
