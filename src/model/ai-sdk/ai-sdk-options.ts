import type {
  LanguageModelV3CallOptions,
  LanguageModelV3FunctionTool,
  LanguageModelV3ProviderTool,
  LanguageModelV3ToolChoice,
  SharedV3ProviderOptions,
} from "@ai-sdk/provider";
import { byProvider, type JsonObject, type ModelOptions, type ToolChoice } from "../../kernel/index.js";

type PassedOn = Omit<LanguageModelV3CallOptions, "prompt" | "abortSignal">;

/** What a request's options become in an AI SDK call. Everything but the choice of tools is passed on as it was given. */
export function passedOn(
  { toolChoice = "auto", parallelToolCalls, activeTools: _, providerOptions = {}, ...options }: ModelOptions,
  tools: (LanguageModelV3FunctionTool | LanguageModelV3ProviderTool)[],
  provider: string,
): PassedOn {
  const oneAtATime = tools.length > 0 && parallelToolCalls === false;
  const all = oneAtATime ? byProvider(withoutParallelCalls(provider), providerOptions) : providerOptions;
  return {
    // Lists and objects of JSON; the specification's types say that they may be changed.
    ...(options as Omit<PassedOn, "toolChoice" | "providerOptions">),
    ...(tools.length > 0 && { tools, toolChoice: choiceOf(toolChoice) }),
    ...(Object.keys(all).length > 0 && { providerOptions: all as SharedV3ProviderOptions }),
  };
}

function choiceOf(choice: ToolChoice): LanguageModelV3ToolChoice {
  return typeof choice === "string" ? { type: choice } : { type: "tool", toolName: choice.tool };
}

/**
 * One tool call at a time, as each provider says it: the specification has no word for it. OpenAI's own package reads
 * `openai` whatever its models are called, and OpenAI-compatible ones send what stands under their name as it is. Gemini
 * and Bedrock have no such setting and pass over it.
 */
function withoutParallelCalls(provider: string): Readonly<Record<string, JsonObject>> {
  const [name = ""] = provider.split(".");
  switch (name) {
    case "anthropic":
      return { anthropic: { disableParallelToolUse: true } };
    case "openai":
    case "azure":
    case "groq":
    case "mistral":
      return { [name]: { parallelToolCalls: false } };
    case "xai":
      return { xai: { parallel_function_calling: false } };
    default:
      // Anthropic's models on Vertex are of the provider `vertex.anthropic`.
      if (provider.includes("anthropic")) return { anthropic: { disableParallelToolUse: true } };
      return { openai: { parallelToolCalls: false }, [name]: { parallel_tool_calls: false } };
  }
}
