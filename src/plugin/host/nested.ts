import type { ProcessActs, ProcessReads } from "./outside.js";
import type { TriggerActs, TriggerReads } from "./triggers.js";

/** The interfaces whose methods stand together under one name, with the names they go by elsewhere. */
const NESTED = {
  processes: {
    processReads: { list: "listProcesses", read: "readProcess", wait: "waitForProcess" },
    processActs: {
      start: "startProcess",
      write: "writeToProcess",
      end: "endProcessInput",
      signal: "signalProcess",
      stop: "stopProcess",
    },
  },
  triggers: {
    triggerReads: { list: "listTriggers", subscriptions: "listSubscriptions" },
    triggerActs: { emit: "emitTrigger", subscribe: "subscribeToTrigger", unsubscribe: "unsubscribeFromTrigger" },
  },
} as const satisfies {
  readonly processes: {
    readonly processReads: Record<keyof ProcessReads, string>;
    readonly processActs: Record<keyof ProcessActs, string>;
  };
  readonly triggers: {
    readonly triggerReads: Record<keyof TriggerReads, string>;
    readonly triggerActs: Record<keyof TriggerActs, string>;
  };
};

type Nested = typeof NESTED;
type MethodsOf<N extends keyof Nested> = {
  [I in keyof Nested[N]]: Nested[N][I][keyof Nested[N][I]];
}[keyof Nested[N]];

export type ProcessMethod = MethodsOf<"processes">;
export type TriggerMethod = MethodsOf<"triggers">;
export type NestedMethod = ProcessMethod | TriggerMethod;
export type NestedInterface = { [N in keyof Nested]: keyof Nested[N] }[keyof Nested];

/** The methods of these interfaces, by the name they stand under and the one each has there. */
const ALL = Object.entries(NESTED).flatMap(([name, interfaces]) =>
  Object.entries(interfaces).map(([owner, methods]) => ({
    name,
    owner: owner as NestedInterface,
    methods: Object.entries(methods) as [string, NestedMethod][],
  })),
);

export const NESTED_METHODS = Object.fromEntries(
  ALL.map(({ owner, methods }) => [owner, methods.map(([, method]) => method)]),
) as unknown as { readonly [I in NestedInterface]: readonly NestedMethod[] };

/** What of it is granted: under each name its methods. */
export function nestedFacade(
  granted: readonly string[],
  call: (method: NestedMethod) => (...args: unknown[]) => Promise<unknown>,
): Record<string, Record<string, unknown>> {
  const facade: Record<string, Record<string, unknown>> = {};
  for (const { name, owner, methods } of ALL) {
    if (!granted.includes(owner)) continue;
    facade[name] = { ...facade[name], ...Object.fromEntries(methods.map(([own, method]) => [own, call(method)])) };
  }
  return facade;
}

export function isNested(owner: string): owner is NestedInterface {
  return Object.hasOwn(NESTED_METHODS, owner);
}
