import { cp, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { fixture, startTroupe, tempFolder } from "../../support/runtime.js";

test("a store, a plugin, a pool tool and a model work in folders with a comma, a hash, a percent sign and a space", async () => {
  const place = join(await tempFolder(), "d,comma", "a#x%20 b");
  await mkdir(place, { recursive: true });
  const at = (name: string) => pathToFileURL(join(place, name));
  await writeFile(
    join(place, "plugin.mjs"),
    'const odd = { description: "d", inputSchema: { type: "object" }, execute: () => "odd" };\nexport default { id: "test.odd", version: "1.0.0", tools: { odd } };\n',
  );
  await cp(fixture("tools/thread-id.mjs"), at("tool.mjs"));
  const toolCalls = ["id", "odd"].map((tool) => ({ tool, args: {} }));
  const script = { turns: [[{ toolCalls }, { text: "done" }]] };
  await writeFile(join(place, "model.mjs"), `export default ${JSON.stringify({ kind: "scripted", script })};\n`);
  const troupe = await startTroupe({
    sessionWorkers: 1,
    store: { path: join(place, "store") },
    plugins: [{ module: at("plugin.mjs") }],
    tools: { id: { module: at("tool.mjs") } },
    model: at("model.mjs"),
  });
  const session = await troupe.session("s");
  const { toolCalls: called, text } = await session.turn("hi");
  expect(text).toBe("done");
  expect(called.map(({ output }) => output)).toEqual([
    { status: "success", value: expect.anything() },
    { status: "success", value: "odd" },
  ]);
  expect((await session.info()).turns).toBe(1);
});
