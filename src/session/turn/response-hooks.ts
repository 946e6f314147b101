import {
  asTroupeError,
  type ModelResponse,
  type Part,
  shownTexts,
  TroupeError,
  type TurnIssue,
} from "../../kernel/index.js";
import type { TurnFacts } from "../../plugin/index.js";
import { type HookOptions, readResponseTransform } from "../plugins/index.js";
import type { Turn } from "./turn.js";

/** A model call, as the hooks behind it are told of it. */
interface HookedCall {
  readonly turn: Turn;
  readonly facts: TurnFacts & { readonly step: number };
}

/** Has the response hooks look at an answer, one after another. */
export async function respond(
  { turn, facts }: HookedCall,
  raw: ModelResponse,
  /** Default: they end with the turn. */
  options: HookOptions = { signal: turn.request.signal },
): Promise<ModelResponse> {
  const { hooks } = turn.session;
  const { emit } = turn.request;
  if (!hooks.has("assistant_response")) return raw;
  let response = raw;
  try {
    await hooks.each(
      "assistant_response",
      () => ({ ...facts, response }),
      (answer, pluginId) => {
        const transform = readResponseTransform(answer, response, pluginId);
        response = transform.response;
        for (const event of transform.events) emit({ type: "plugin_event", pluginId, event });
      },
      options,
    );
    return response;
  } catch (cause) {
    const { message } = asTroupeError(cause, "hook_failed");
    throw new TroupeError("plugin_assistant_response", `A response hook failed: ${message}`, { cause });
  }
}

interface Shown {
  readonly shown?: readonly Part[];
  readonly issues: readonly TurnIssue[];
}

/**
 * The text that was shown of an answer its turn is cancelled in, when it is to be kept. Response hooks see it as they see
 * whole answers, because what they take out of those must not be stored here either; when one fails, nothing is kept.
 */
export async function shownOf(call: HookedCall, said: ModelResponse): Promise<Shown> {
  const { signal, stop } = call.turn.request;
  if (!signal.aborted || stop?.cancellation?.keepPartial !== true) return NOTHING;
  const parts = shownTexts(said.parts);
  if (parts.length === 0) return NOTHING;
  try {
    const { reason, usage } = said;
    // The turn's signal is aborted: no hook would be asked under it.
    const { parts: shown } = await respond(call, { parts, reason, usage }, {});
    return { shown, issues: [] };
  } catch (error) {
    const { code, message } = asTroupeError(error, "plugin_assistant_response");
    return { issues: [{ kind: "plugin", code, message: `What was shown of the answer is not kept. ${message}` }] };
  }
}

const NOTHING: Shown = { issues: [] };

/** Shows an answer that an earlier life of the turn was given to whoever was not there then; its calls are told anew anyway. */
export function retell({ request, now }: Turn, response: ModelResponse): void {
  if (request.retell === undefined) return;
  for (const [index, part] of response.parts.entries()) {
    const at = now();
    const blockId = `${part.type}-${index}`;
    if (part.type === "text") request.retell({ type: "text_delta", blockId, text: part.text, at });
    else if (part.type === "reasoning") {
      if (part.text !== "") request.retell({ type: "reasoning_delta", blockId, text: part.text, at });
    } else if (part.type !== "tool_call" && part.type !== "tool_result")
      request.retell({ type: "answer_part", part, at });
  }
}
