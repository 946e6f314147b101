import { join } from "node:path";
import { scriptedModel } from "troupe";
import { expect, test } from "vitest";
import { EMPTY_OBJECT, plugin, startTroupe, tempFolder } from "../../support/runtime.js";

const HALF = "cut \ud83d";
const WHOLE = "cut \ufffd";

test("text with half of a surrogate pair reads the same while its session lives and when it is opened again", async () => {
  const options = {
    store: { path: join(await tempFolder(), "store") },
    model: scriptedModel({
      turns: [[{ toolCalls: [{ tool: "cuts", argsText: '{"a":"cut \\ud83d"}' }] }, { text: "You said: {input}" }]],
    }),
    tools: { cuts: { description: "cuts", inputSchema: EMPTY_OBJECT, execute: () => ({ [HALF]: HALF }) } },
    plugins: [{ module: plugin("keeps-texts") }],
  };
  const first = await startTroupe(options);
  const session = await first.session("s");
  await session.append({ nodes: [{ kind: "message", message: { role: "user", text: HALF } }] });
  await session.configure({ instructions: HALF });
  const { text, toolCalls } = await session.turn(HALF);
  expect(text).toBe(`You said: ${WHOLE}`);
  expect(toolCalls).toMatchObject([{ args: { a: WHOLE }, output: { status: "success", value: { [WHOLE]: WHOLE } } }]);
  const live = { messages: await session.messages(), kept: await session.query("test.kept") };
  expect(JSON.stringify(live)).not.toMatch(/\\ud83d/);
  expect(live.kept).toEqual([`${WHOLE} 1`]);
  await first.close();

  const again = await (await startTroupe(options)).session("s");
  expect({ messages: await again.messages(), kept: await again.query("test.kept") }).toEqual(live);
});
