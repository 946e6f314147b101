import { type JsonObject, type ToolSpec, TroupeError } from "../../kernel/index.js";
import type { ToolPolicy } from "../tool/index.js";
import type { HookKind } from "./hooks.js";
import type { OperationSpec } from "./operations.js";

/** A hook as it is known without its code. */
export interface HookSpec {
  readonly kind: HookKind;
  /** The tools it is for; absent: all. */
  readonly tools?: readonly string[];
  readonly priority?: number;
}

export interface PluginToolSpec extends ToolPolicy {
  readonly spec: ToolSpec;
  readonly onDemand?: boolean;
}

/** An event of the outside world that a plugin knows how to start something with. */
export interface TriggerSpec {
  readonly resourceType: string;
  readonly alias: string;
  readonly event: string;
  readonly payloadSchema: JsonObject;
}

/** The name a trigger goes by. */
export function triggerSource({ alias, event }: Pick<TriggerSpec, "alias" | "event">): string {
  return `${alias}.${event}`;
}

/** What a plugin contributes to a session, as data: enough to call only what exists. */
export interface Contributions {
  readonly hooks: readonly HookSpec[];
  readonly tools: readonly PluginToolSpec[];
  readonly operations: readonly OperationSpec[];
  readonly triggers: readonly TriggerSpec[];
}

export const NO_CONTRIBUTIONS: Contributions = Object.freeze({ hooks: [], tools: [], operations: [], triggers: [] });

/**
 * The triggers of all plugins. Two with one resource type, alias and event are refused, and so are two that would go by
 * one name although their resource types differ.
 */
export class TriggerCatalog {
  readonly all: readonly TriggerSpec[];

  constructor(triggers: readonly { readonly pluginId: string; readonly trigger: TriggerSpec }[]) {
    const owners = new Map<string, string>();
    for (const { pluginId, trigger } of triggers) {
      const source = triggerSource(trigger);
      const other = owners.get(source);
      if (other !== undefined) {
        throw new TroupeError("duplicate_trigger", `Plugins ${other} and ${pluginId} both declare trigger ${source}.`, {
          details: { trigger: source, plugins: [other, pluginId] },
        });
      }
      owners.set(source, pluginId);
    }
    this.all = triggers.map(({ trigger }) => trigger);
  }

  find(resourceType: string, alias: string, event: string): TriggerSpec | undefined {
    return this.all.find(
      (trigger) => trigger.resourceType === resourceType && trigger.alias === alias && trigger.event === event,
    );
  }
}
