import {
  checkMetadata,
  checkTenantName,
  type FieldsOf,
  invalidOptions,
  readAgentName,
  unknownField,
} from "../../kernel/index.js";
import type { OpeningOptions } from "../../session/index.js";

export interface SessionOptions extends OpeningOptions {}

const SESSION_OPTIONS: FieldsOf<SessionOptions> = {
  pluginOptions: true,
  tenant: true,
  metadata: true,
  agent: true,
  plugins: true,
};

const CONFIGURING = "session.configure() says it for one session.";
const ELSEWHERE: Readonly<Record<string, string>> = {
  instructions: CONFIGURING,
  prompt: CONFIGURING,
  model: CONFIGURING,
  modelOptions: CONFIGURING,
  maxSteps: CONFIGURING,
  window: CONFIGURING,
  cache: CONFIGURING,
  compaction: CONFIGURING,
  budget: "session.setBudget() says it for one session.",
  tools: "An agent says which of the runtime's tools it has.",
};

/** Throws `invalid_options` for what no session can be opened with. Null is as good as nothing. */
export function checkOpening(options: SessionOptions): OpeningOptions {
  if (!isObject(options)) throw invalidOptions("A session's options must be an object");
  const unknown = unknownField(options, SESSION_OPTIONS, "A session", "option", ELSEWHERE);
  if (unknown !== undefined) throw invalidOptions(unknown);
  const { pluginOptions, tenant, metadata, agent, plugins } = options;
  if (agent != null) readAgentName(agent);
  if (plugins != null && !(Array.isArray(plugins) && plugins.every((id) => typeof id === "string")))
    throw invalidOptions("plugins must be a list of plugin ids");
  return {
    ...(agent != null && { agent }),
    ...(plugins != null && { plugins: [...new Set(plugins)] }),
    ...(pluginOptions != null && { pluginOptions }),
    ...(tenant != null && { tenant: checkTenantName(tenant) }),
    ...(metadata != null && { metadata: checkMetadata(metadata) }),
  };
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
