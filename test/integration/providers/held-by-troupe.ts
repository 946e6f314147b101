import { createTroupe, type TurnInput } from "troupe";
import { toolContent } from "troupe/plugin";
import { fixture } from "../../support/runtime.js";
import { type Holding, SYSTEM, startHolding } from "./holding.js";
import { IMAGE, SCREEN, sharedTools } from "./tools.js";
import { optionsOf, type Wire } from "./wires.js";

/** Holds conversations over a wire in sessions of one runtime, whose worker calls the provider's package. */
export function heldByTroupe(wire: Wire, { keepPartial = false } = {}): Promise<Holding> {
  return startHolding(wire, async (server) => {
    const { tools, cross, whenPatient } = sharedTools();
    const url = fixture("models/provider.mjs");
    url.searchParams.set("wire", wire);
    url.searchParams.set("base", server.url);
    const model = url.href;
    const troupe = await createTroupe({
      model,
      models: { "with provider tools": `${model}&tools` },
      tools: { ...tools, screenshot: { ...tools.screenshot, execute: () => toolContent(SCREEN) } },
      instructions: SYSTEM,
      modelOptions: optionsOf(wire),
      // `ai` marks nothing for caches by itself; what Troupe marks is shown in test/model/ai-sdk/cache-hints.test.ts.
      cache: "off",
      sessionWorkers: 1,
    });
    return {
      async hold({ name, asks: [first, ...others], crosses, attaches, withProviderTools }, onText) {
        if (crosses) cross();
        const session = await troupe.session(name);
        const options = withProviderTools ? { model: "with provider tools" } : {};
        const turn = session.turn(attaches ? withImage(first) : first, options);
        const stop = () => turn.cancel("enough", { keepPartial });
        whenPatient(stop);
        for await (const { type } of turn) if (type === "text_delta") onText(stop);
        await turn;
        for (const ask of others) await session.turn(ask, options);
      },
      close: () => troupe.close(),
    };
  });
}

function withImage(text: string): TurnInput {
  const { mediaType, data } = IMAGE;
  const bytes = new Uint8Array(Buffer.from(data, "base64"));
  return {
    items: [
      { type: "text", text },
      { type: "attachment", source: { kind: "inline", mediaType, bytes } },
    ],
  };
}
