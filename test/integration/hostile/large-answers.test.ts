import type { Session } from "troupe";
import { expect, test } from "vitest";
import { listening } from "../../support/listening.js";
import { fixture, oneToolCall, PATIENT, RESIDENT, refusalOf, startTroupe } from "../../support/runtime.js";

const SAYS_MUCH = { module: fixture("hostile/says-much.mjs"), ...PATIENT, deadlineMs: 60_000 };

async function twoSessions(options = {}): Promise<{ attacker: Session; neighbour: Session }> {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [SAYS_MUCH], ...options });
  return { attacker: await troupe.session("attacker"), neighbour: await troupe.session("neighbour") };
}

test.each(["long text", "many values", "a claimed length", "deep nesting", "bytes"])(
  "a hook that answers with too much (%s) is refused on its own thread, at once or later, and its neighbour's turns finish",
  async (answer) => {
    const { attacker, neighbour } = await twoSessions();
    for (const when of ["", "late "]) {
      const refused = refusalOf(attacker.turn(when + answer));
      expect((await neighbour.turn("hi")).outcome.type).toBe("finished");
      expect((await refused).cause).toMatchObject({ code: "answer_too_large" });
    }
    expect((await attacker.turn("hi")).outcome.type).toBe("finished");
  },
);

test("a tool, a query and what a host service is given are measured on the plugin's own thread too", async () => {
  const heard = listening();
  const { attacker } = await twoSessions({ model: oneToolCall("much"), onEvent: heard.onEvent });
  const { output } = (await attacker.turn("hi")).toolCalls[0] ?? {};
  expect(output).toMatchObject({ status: "failure", failure: { code: "tool_failed" } });
  expect((await heard.first("tool_failed")).error.message).toMatch(/it did not leave the plugin's thread/);
  expect((await refusalOf(attacker.query("much.ask"))).code).toBe("answer_too_large");
  expect(await attacker.query("much.host")).toBe("answer_too_large");
});
