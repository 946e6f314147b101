import { asTroupeError, type BeforeTurnDirective, type Owned } from "../../kernel/index.js";
import type { HookFacts } from "../../plugin/index.js";
import type { HookCalls } from "./hook-calls.js";
import type { RegisteredHook } from "./hook-table.js";
import type { HookOptions } from "./plugin-link.js";
import { readReplacing } from "./read-directives.js";

/** Hooks asked one by one, because what the next one is told, and whether it is asked at all, follows from the last answer. */
interface OneByOne {
  readonly calls: HookCalls;
  readonly hooks: readonly RegisteredHook[];
  readonly options: HookOptions;
}

/**
 * Asks the hooks that may replace the input, each told what the one before made of it. Whatever fails is thrown, whatever
 * its plugin's policy: without their word nobody knows whether the input may be kept.
 */
export async function replacedInput(
  { calls, hooks, options }: OneByOne,
  asked: string,
  facts: (pluginId: string, input: string) => HookFacts["before_turn"],
): Promise<Owned<BeforeTurnDirective>[]> {
  const directives: Owned<BeforeTurnDirective>[] = [];
  let input = asked;
  for (const hook of hooks) {
    const pluginId = calls.idOf(hook);
    try {
      for (const directive of readReplacing(await calls.call(hook, facts(pluginId, input), options), pluginId)) {
        directives.push(directive);
        if (directive.value.kind === "replace_input") input = directive.value.text;
      }
    } catch (error) {
      calls.byPolicy(hook, error, options);
      throw asTroupeError(error, "hook_failed");
    }
  }
  return directives;
}

/** The end of a block: hooks that want to know are told, with or without text; others are given text only. */
export async function askFinal(
  { calls, hooks, options }: OneByOne,
  facts: (final: boolean) => HookFacts["assistant_stream"],
  read: (answer: unknown, pluginId: string) => void,
): Promise<void> {
  for (const hook of hooks) {
    const told = facts(hook.spec.final === true);
    if (!told.final && told.chunk === "") continue;
    try {
      read(await calls.call(hook, told, options), calls.idOf(hook));
    } catch (error) {
      if (calls.byPolicy(hook, error, options) !== "skip") throw error;
    }
  }
}
