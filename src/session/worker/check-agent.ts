import { type Agent, invalidAgent, knownInstead, type TroupeError } from "../../kernel/index.js";
import type { Surfaces } from "../plugins/index.js";

/** What an agent can name. */
interface Nameable {
  readonly surfaces: Pick<Surfaces, "plugins" | "protocols" | "knownTools">;
  readonly models: ReadonlyMap<string, unknown>;
}

/** Throws when an agent names something that the runtime has not: a misspelt tool would only be missed by the model. */
export function checkAgent(agent: Agent, { surfaces, models }: Nameable): void {
  const { plugins = [], tools = [], protocol, calling, model = "" } = agent;
  const stranger = plugins.find((id) => !surfaces.plugins.includes(id));
  if (stranger !== undefined) throw unknown(agent, "plugin", stranger, surfaces.plugins);
  // What plugins register for a session is known only when they have.
  const { names, others } = surfaces.knownTools;
  const tool = others ? undefined : tools.find((name) => !names.includes(name));
  if (tool !== undefined) throw unknown(agent, "tool", tool, names);
  if (protocol !== undefined && !surfaces.protocols.includes(protocol))
    throw unknown(agent, "protocol", protocol, surfaces.protocols);
  const gone = [model, ...(calling?.fallbackModels ?? [])].find((name) => !models.has(name));
  if (gone !== undefined) throw unknown(agent, "model", gone, [...models.keys()].filter(Boolean));
}

function unknown(
  { name: agent }: Agent,
  what: "plugin" | "tool" | "protocol" | "model",
  name: string,
  known: readonly string[],
): TroupeError {
  return invalidAgent(`${agent} names a ${what} ${name}, which the runtime has not (${knownInstead(name, known)})`);
}
