import { systemClock } from "../../src/async/index.js";
import type { Message, ModelEvent, ModelRequest } from "../../src/kernel/index.js";
import { createScriptedModel, type Script } from "../../src/model/index.js";

/** The reference turn: a model call that asks for a tool, the tool, a model call that answers. No latency anywhere. */
export const SCRIPT: Script = {
  turns: [[{ toolCalls: [{ tool: "look_up", args: { city: "Oslo" } }] }, { text: "It is 21 degrees in Oslo." }]],
};
export const INPUT = "What is the weather in Oslo?";
export const HOOK_KINDS = ["before_turn", "before_tool_call", "after_tool_call", "after_turn"] as const;

export const lookUpInput = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
} as const;

export function lookUp({ city }: { readonly [key: string]: unknown }): { city: unknown; degrees: number } {
  return { city, degrees: 21 };
}

/** Only what the turn is about: the model is asked, the tool is run, the model is asked again. */
export function bareTurns(): (sessionId: string) => Promise<string> {
  const model = createScriptedModel(SCRIPT, systemClock);
  const { signal } = new AbortController();
  return async (sessionId) => {
    const turn: Message[] = [{ id: "t1.0", role: "user", parts: [{ type: "text", text: INPUT }] }];
    const request: Omit<ModelRequest, "step"> = { sessionId, turnId: "t1", system: "", history: [], turn, tools: [] };
    let text = "";
    for (let step = 0; step < 2; step++) {
      const calls: Extract<ModelEvent, { type: "tool_call" }>[] = [];
      for await (const event of model.stream({ ...request, step }, signal)) {
        if (event.type === "text_delta") text += event.text;
        else if (event.type === "tool_call") calls.push(event);
      }
      for (const { callId, toolName, argsText } of calls) {
        const args = JSON.parse(argsText);
        const result = JSON.stringify(await lookUp(args));
        turn.push(
          { id: "t1.1", role: "assistant", parts: [{ type: "tool_call", callId, toolName, args }] },
          {
            id: "t1.2",
            role: "tool",
            parts: [{ type: "tool_result", callId, toolName, status: "success", text: result }],
          },
        );
      }
    }
    return text;
  };
}
