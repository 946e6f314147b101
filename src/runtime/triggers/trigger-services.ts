import { checkTriggerKey } from "../../kernel/index.js";
import { HOST_METHODS, type HostMethod, type TriggerMethod } from "../../plugin/index.js";
import type { OutsideAsk } from "../../session/index.js";
import type { Triggers } from "./triggers.js";

/**
 * Answers what plugins ask of triggers about their session. That the caller was granted it, and may see the sessions it
 * names, has been checked where the call was made.
 */
export class TriggerServices {
  readonly #triggers: Triggers;

  constructor(triggers: Triggers) {
    this.#triggers = triggers;
  }

  static has(method: HostMethod): boolean {
    return HOST_METHODS[method] === "triggerReads" || HOST_METHODS[method] === "triggerActs";
  }

  async answer(ask: OutsideAsk): Promise<unknown> {
    const { sessionId, pluginId, args } = ask;
    const [first, second, third] = args as readonly [string, never, never];
    switch (ask.method as Exclude<TriggerMethod, "listTriggers">) {
      case "listSubscriptions":
        return this.#triggers.subscriptions(sessionId);
      case "emitTrigger":
        return this.#triggers.emit(ask, first, second ?? null, third);
      case "subscribeToTrigger": {
        const { key = first, ...request } = (second ?? {}) as { readonly key?: string };
        return this.#triggers.subscribe(sessionId, first, { ...request, key: keyOf(pluginId, key) });
      }
      case "unsubscribeFromTrigger":
        return this.#triggers.unsubscribe(sessionId, keyOf(pluginId, first));
    }
  }
}

/** A subscription of the plugin's own: it ends neither the host's nor another plugin's. */
function keyOf(pluginId: string, key: string): string {
  const prefix = `${pluginId}:`;
  return checkTriggerKey(key).startsWith(prefix) ? key : prefix + key;
}
