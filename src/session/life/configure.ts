import {
  asTroupeError,
  changeConfig,
  type Json,
  type SessionConfig,
  sameConfig,
  type TurnIssue,
} from "../../kernel/index.js";
import type { ConfigReceipt } from "../calls/index.js";
import { readConfigChange } from "../plugins/index.js";
import type { Session } from "../state/index.js";
import { settleOrIssue } from "../turn/index.js";

/**
 * Changes a session's configuration: what was asked for, then what the mutators make of it, then it is stored, then it
 * is told. A mutator that fails is passed over; nobody can undo the change afterwards. When nothing changes, nobody is
 * asked.
 */
export async function configureSession(session: Session, change: Partial<SessionConfig>): Promise<ConfigReceipt> {
  const { hooks, id: sessionId } = session;
  const { config: previous } = session.settings;
  const current = changeConfig(previous, change);
  if (current === previous) return { config: previous, changed: false, issues: [] };
  const issues: TurnIssue[] = [];
  let config = current;
  const facts = () => ({ sessionId, previous, current, config });
  for await (const { pluginId, answer } of hooks.oneByOne("session_config_mutator", facts)) {
    try {
      config = changeConfig(config, readConfigChange(answer(), pluginId));
    } catch (error) {
      const { message } = asTroupeError(error, "hook_failed");
      issues.push({ kind: "plugin", code: "config_mutator_failed", message, pluginId });
    }
  }
  if (sameConfig(previous, config)) return { config: previous, changed: false, issues };
  session.settings.change(config);
  await session.stored.store("config");
  issues.push(...(await hooks.announce("session_config_changed", { sessionId, previous, current: config })));
  issues.push(...(await settleOrIssue(session)));
  return { config, changed: true, issues };
}

/** What an extension changes in the code executor is stored before it is answered. */
export async function extendSession({ protocol, stored }: Session, extension: Json): Promise<void> {
  await protocol.applyExtension(extension);
  if ((await protocol.captureExecution()) !== undefined) await stored.store("extension");
}
