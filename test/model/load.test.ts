import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/async/index.js";
import { loadModel, type Model, type ModelSource } from "../../src/model/index.js";
import { calm, collect, requestOf, textIn } from "./ai-sdk/requests.js";

/** A module that exports a model, and not what makes models. */
const plainModel = async (source: ModelSource) => (await loadModel(source, systemClock)) as Model;
const fixture = (path: string): ModelSource => ({ kind: "module", url: new URL(path, import.meta.url).href });

describe("loading a model module", () => {
  it("takes an AI SDK language model", async () => {
    expect(await loadModel(fixture("./fixtures/ai-sdk-model.mjs"), systemClock)).toMatchObject({
      id: "local.chat:tiny",
    });
  });

  it("takes an object with id and stream", async () => {
    const model = await plainModel(fixture("./fixtures/custom-model.mjs"));
    expect(model.id).toBe("custom");
    expect(textIn(await collect(model.stream(requestOf(), calm())))).toBe("custom");
  });

  it("refuses options for a module that exports a model itself: nothing would read them", async () => {
    const source = { ...fixture("./fixtures/custom-model.mjs"), options: { region: "eu" } } as ModelSource;
    await expect(loadModel(source, systemClock)).rejects.toMatchObject({
      code: "model_module_invalid",
      message: expect.stringMatching(/it was given options and exports no function that takes them\. .*\.$/),
    });
  });

  it("takes an AI SDK language model that can only generate", async () => {
    const model = await plainModel(fixture("./fixtures/generate-only.mjs"));
    expect(model.id).toBe("test:whole");
    expect(await collect(model.stream(requestOf(), calm()))).toMatchObject([
      { type: "text", blockId: "text-0", text: "generated" },
      { type: "finish", reason: "stop" },
    ]);
  });

  it("asks an AI SDK language model for whole answers when the module says stream: false", async () => {
    const model = await plainModel(fixture("./fixtures/stream-false.mjs"));
    expect(model.id).toBe("test:both");
    expect(await collect(model.stream(requestOf(), calm()))).toMatchObject([
      { type: "text", blockId: "text-0", text: "generated" },
      { type: "finish", reason: "stop" },
    ]);
  });

  it("takes what an exported async function returns", async () => {
    const model = await plainModel(fixture("./fixtures/async-factory.mjs"));
    expect(textIn(await collect(model.stream(requestOf(), calm())))).toBe("made by a function");
  });

  it("says when there is no such module", async () => {
    await expect(loadModel(fixture("./fixtures/nowhere.mjs"), systemClock)).rejects.toMatchObject({
      code: "model_module_not_found",
      message: expect.stringContaining("fixtures/nowhere.mjs"),
    });
  });

  it.each([
    ["does not parse", "../fixtures/broken/model-syntax-error.mjs", "importing it failed"],
    ["throws", "./fixtures/throws.mjs", ": no config file"],
    ["imports what is missing", "./fixtures/missing-import.mjs", "importing it failed"],
    ["has no default export", "./fixtures/no-default.mjs", "no default export. Export the model as default"],
    ["exports something else", "./fixtures/not-a-model.mjs", "default export is no model. Export an AI SDK"],
    ["exports a model without id", "./fixtures/nameless-model.mjs", "Add a string id"],
    ["exports a function that throws", "./fixtures/factory-throws.mjs", "the function it exports threw: no licence"],
    ["exports a provider", "./fixtures/ai-sdk-provider.mjs", "export default provider('model-id')"],
    ["has an old AI SDK model", "./fixtures/old-specification.mjs", "specification v1; v2, v3 and v4 are understood"],
    [
      "exports a model of the AI SDK for something else",
      "./fixtures/embedding-model.mjs",
      "its AI SDK model is no language model: it has neither doStream() nor doGenerate(). Export one that has.",
    ],
    [
      "wants no stream of an old AI SDK model",
      "./fixtures/stream-false-old.mjs",
      "specification v1; v2, v3 and v4 are understood",
    ],
    [
      "wants no stream of a model that can only stream",
      "./fixtures/stream-false-stream-only.mjs",
      "test:live has no doGenerate(), which stream: false needs.",
    ],
    [
      "wants no stream of a model of another kind",
      "./fixtures/stream-false-custom.mjs",
      "stream: false goes with an AI SDK language model, which its model is not.",
    ],
    [
      "gives tools of a provider to a model of another kind",
      "./fixtures/provider-tools-custom.mjs",
      "providerTools goes with an AI SDK language model, which its model is not.",
    ],
    [
      "gives a tool of its own as a provider's",
      "./fixtures/provider-tools-own.mjs",
      "providerTools.weather is no tool of a provider",
    ],
  ])("refuses a module that %s", async (_, path, message) => {
    await expect(loadModel(fixture(path), systemClock)).rejects.toMatchObject({
      code: "model_module_invalid",
      message: expect.stringContaining(message),
    });
  });

  it("refuses a path that is not a URL and says how to write one", async () => {
    await expect(loadModel({ kind: "module", url: "./model.js" }, systemClock)).rejects.toMatchObject({
      code: "model_module_invalid",
      message: expect.stringContaining('new URL("./model.js", import.meta.url)'),
    });
  });

  it("names what is wrong in a module's script", async () => {
    await expect(loadModel(fixture("./fixtures/bad-script.mjs"), systemClock)).rejects.toMatchObject({
      code: "invalid_script",
    });
  });
});
