import { TroupeError, triggerCheckTimeout } from "../../kernel/index.js";
import { isCostlySchema, triggerSource } from "../../plugin/index.js";
import type { SchemaChecks } from "../../tools/index.js";
import { PluginSlot, type Surfaces, type TriggeredEvent } from "../plugins/index.js";

interface CheckedBy {
  readonly checks: Pick<SchemaChecks, "check">;
  readonly surfaces: Pick<Surfaces, "common" | "links" | "nextSlot">;
}

/**
 * What is wrong with an event's payload; undefined: it fits. Its plugin's schema says so, on the plugin's thread. A schema
 * with a pattern that some payloads never get through is tried on a thread of its own before: the payload is a stranger's,
 * and whoever waits for the plugin is not to wait for it.
 */
export async function checkTrigger(
  { source, payload }: TriggeredEvent,
  { checks, surfaces }: CheckedBy,
): Promise<string | undefined> {
  const { triggers } = surfaces.common;
  const schema = triggers.all.find((each) => triggerSource(each) === source)?.payloadSchema;
  const link = surfaces.links.find(({ manifest }) => manifest.id === triggers.ownerOf(source));
  if (schema === undefined || link === undefined) return undefined;
  const sessionId = `trigger:${source}`;
  if (isCostlySchema(schema)) {
    const { signal } = new AbortController();
    await checks.check({ sessionId, toolName: source, schema, args: payload, signal }).catch((error: unknown) => {
      if (!(error instanceof TroupeError) || error.code !== "tool_check_timeout") throw error;
      throw triggerCheckTimeout(source, 1_000, { cause: error });
    });
  }
  return link.payload(new PluginSlot(sessionId, { number: surfaces.nextSlot() }), { source, payload });
}
