import { jsonSchema, type LanguageModel, type ModelMessage, stepCountIs, streamText, type ToolSet, tool } from "ai";
import { ignore } from "../../../src/async/index.js";
import { fixture } from "../../support/runtime.js";
import { type Holding, SYSTEM, startHolding } from "./holding.js";
import { IMAGE, SCREEN, type SharedTool, sharedTools } from "./tools.js";
import { optionsOf, type Wire } from "./wires.js";

interface ProviderModels {
  providerModel(wire: Wire, base: string): Promise<{ readonly model: LanguageModel; readonly providerTools?: ToolSet }>;
}

/**
 * Holds conversations with `ai` 6: one `streamText` for each turn, with the messages of the turns before it, as its
 * documentation has it. A turn that was stopped leaves its finished steps.
 */
export function heldByAi(wire: Wire): Promise<Holding> {
  return startHolding(wire, async (server) => {
    const { providerModel } = (await import(fixture("models/providers.mjs").href)) as ProviderModels;
    const { model, providerTools = {} } = await providerModel(wire, server.url);
    const { tools: shared, cross, whenPatient } = sharedTools();
    const ownTools = Object.fromEntries(Object.entries(shared).map(([name, each]) => [name, ownTool(each)]));
    const screenshot = { ...ownTool(shared.screenshot), toModelOutput: screenOutput };
    return {
      async hold({ asks, crosses, attaches, withProviderTools }, onText) {
        if (crosses) cross();
        const tools: ToolSet = { ...ownTools, screenshot, ...(withProviderTools && providerTools) };
        const messages: ModelMessage[] = [];
        const aborter = new AbortController();
        const stop = () => aborter.abort();
        whenPatient(stop);
        for (const [index, ask] of asks.entries()) {
          const { data, mediaType } = IMAGE;
          const image = { type: "file" as const, data, mediaType };
          const content = attaches && index === 0 ? [{ type: "text" as const, text: ask }, image] : ask;
          messages.push({ role: "user", content });
          let finished: readonly ModelMessage[] = [];
          const result = streamText({
            ...{
              model,
              tools,
              messages,
              system: SYSTEM,
              stopWhen: stepCountIs(8),
              onError: ignore,
              ...optionsOf(wire),
            },
            onChunk({ chunk }) {
              if (index === 0 && chunk.type === "text-delta") onText(stop);
            },
            onStepFinish({ response }) {
              finished = response.messages;
            },
            ...(index === 0 && { abortSignal: aborter.signal }),
          });
          await result.consumeStream();
          messages.push(...finished);
        }
      },
      close: async () => {},
    };
  });
}

function ownTool({ description, inputSchema, execute }: SharedTool) {
  const validate = (value: unknown) => {
    const missing = inputSchema.required.filter((name) => !Object.hasOwn(value as object, name));
    if (missing.length === 0) return { success: true as const, value: value as object };
    return { success: false as const, error: new Error(`${missing.join(", ")} is missing`) };
  };
  return tool({ description, inputSchema: jsonSchema<object>(inputSchema, { validate }), execute });
}

/** `SCREEN` as `ai` 6 wants it. */
export function screenOutput() {
  return { type: "content" as const, value: SCREEN.map(screenItem) };
}

function screenItem(item: (typeof SCREEN)[number]) {
  switch (item.type) {
    case "text":
      return item;
    case "image":
      return { type: "image-data" as const, data: item.data, mediaType: item.mediaType };
    case "file":
      return { type: "file-data" as const, data: item.data, mediaType: item.mediaType, filename: item.name };
  }
}
