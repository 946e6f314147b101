import type { Owned } from "../../kernel/index.js";
import type { HookFacts } from "../../plugin/index.js";
import { type HookCalls, type MaybePromise, settle } from "./hook-calls.js";
import type { HookTable, RegisteredHook } from "./hook-table.js";
import { OrderedHooks } from "./ordered-hooks.js";
import type { HookOptions } from "./plugin-link.js";
import type { DirectivesAt } from "./read-directives.js";

export type AroundTool = "before_tool_call" | "after_tool_call";

/** What the hooks around a tool call are asked about: its arguments, or its result. */
export interface AskedAround<S extends AroundTool, T> {
  readonly site: S;
  readonly first: T;
  readonly facts: (subject: T) => HookFacts[S];
  readonly options: HookOptions;
}

export interface HooksAround<S extends AroundTool, T> {
  readonly count: number;
  /** Asks hook `n`; those behind it up to `end` are asked about the same subject, unless one replaces it. */
  ask(n: number, subject: T, end: number): MaybePromise<Owned<DirectivesAt<S>>[]>;
  /** Nobody asks for the rest once this has settled. */
  until<R>(asking: Promise<R>): Promise<R>;
}

/**
 * The hooks around one tool call, to be asked one by one; what they are asked about may change on the way. With concurrent
 * dispatch all of them are asked about the first subject at once; what a replacement changes is asked again.
 */
export function aroundTool<S extends AroundTool, T>(
  calls: HookCalls,
  { site, first, facts, options }: AskedAround<S, T>,
  { registered, dispatch }: { readonly registered: readonly RegisteredHook[] } & Pick<HookTable, "dispatch">,
): HooksAround<S, T> {
  const count = registered.length;
  const read = (n: number, called: () => unknown) => calls.ask(site, registered[n] as RegisteredHook, called, options);
  const askNow = (n: number, subject: T) =>
    read(n, () => calls.call(registered[n] as RegisteredHook, facts(subject), options));
  if (count < 2) return { count, ask: askNow, until };
  if (dispatch === "sequential") {
    if (!calls.haveCompany(registered)) return { count, ask: askNow, until };
    const ordered = new OrderedHooks(calls, registered, options);
    return {
      count,
      ask: (n, subject, end) => read(n, () => ordered.ask(n, () => facts(subject), { subject, end })),
      until: (asking) => asking.finally(() => ordered.end()),
    };
  }
  const early = registered.map((_, n) => settle(() => askNow(n, first)));
  const used = new Set<number>();
  return {
    count,
    ask: (n, subject) => {
      if (subject !== first || used.has(n)) return askNow(n, subject);
      used.add(n);
      return (early[n] as Promise<() => Owned<DirectivesAt<S>>[]>).then((answer) => answer());
    },
    until,
  };
}

/** Where nothing is to be ended. */
function until<R>(asking: Promise<R>): Promise<R> {
  return asking;
}
