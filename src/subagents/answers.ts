import type { TurnResult } from "../index.js";
import { TroupeError, toolError } from "../plugin/index.js";
import type { Agent } from "./family.js";

/** What an agent's turn came to, as the model that asked reads it; throws when it is no answer. */
export function answerOf({ name }: Pick<Agent, "name">, { outcome, text }: TurnResult) {
  if (outcome.type === "finished") return { agent: name, answer: outcome.value ?? text };
  const why = outcome.type === "stopped" ? outcome.message : `It went over to ${outcome.frameId}.`;
  const said = text === "" ? "" : ` It had said: ${text}`;
  const code = outcome.type === "stopped" ? outcome.code : "subagent_stopped";
  throw toolError(`Agent ${name} did not come to an answer: ${why}${said}`, { code });
}

/** What kept an agent from its work, in words the model reads. */
export function saidOf({ name }: Pick<Agent, "name">, error: unknown): unknown {
  if (!(error instanceof TroupeError)) return error;
  if (error.details.forModel === true) return error;
  if (error.code === "turn_running" || error.code === "session_busy") return busy({ name });
  return toolError(`Agent ${name} could not be asked: ${error.message}`, { code: error.code });
}

export function busy({ name }: Pick<Agent, "name">): TroupeError {
  return toolError(`Agent ${name} is at work. Wait for its answer, or close it.`, { code: "subagent_busy" });
}
