import { type TroupeError, unknownName } from "../../kernel/index.js";
import { HOOK_KINDS, type HookName } from "../../plugin/index.js";
import type { FailurePolicies } from "../../session/index.js";
import { invalid } from "./option-checks.js";

/**
 * What becomes of a hook that fails. `fail_turn`: the turn ends with its error. `deny`: the tool call it is about fails.
 * `skip`: it counts as having answered nothing, and the turn has an issue.
 */
export type FailurePolicy = "fail_turn" | "deny" | "skip";

/**
 * One policy for all hooks of a plugin, or one for each by the name its author writes.
 *
 * @example
 * { module, onFailure: { beforeToolCall: "fail_turn", promptContributor: "skip" } }
 */
export type OnFailure = "fail_turn" | "skip" | { readonly [N in HookName]?: FailurePolicy };

/** What each hook does by itself; `reads`: the turn goes on, and the model reads the error. */
const BY_ITSELF: Readonly<Record<HookName, FailurePolicy | "reads">> = {
  turnContextTransform: "fail_turn",
  beforeTurn: "fail_turn",
  toolCatalogContributor: "fail_turn",
  promptContributor: "fail_turn",
  assistantStream: "fail_turn",
  assistantResponse: "fail_turn",
  proseProjector: "fail_turn",
  streamFinished: "skip",
  beforeToolCall: "deny",
  afterToolCall: "deny",
  toolResultProjector: "reads",
  checkpoint: "fail_turn",
  afterTurn: "fail_turn",
  turnFinalized: "skip",
  turnPersisted: "skip",
  sessionRestored: "fail_turn",
  sessionConfigMutator: "skip",
  sessionConfigChanged: "skip",
  contextCompactor: "fail_turn",
};

/** Told of what is stored already: there is nothing left that could fail. */
const TOLD_TOO_LATE: readonly HookName[] = ["turnPersisted", "sessionConfigChanged"];
const AROUND_TOOL_CALLS: readonly HookName[] = ["beforeToolCall", "afterToolCall"];
const POLICIES: readonly unknown[] = ["fail_turn", "deny", "skip"];
const NAMES = Object.keys(HOOK_KINDS) as HookName[];

/** Only what differs from what a kind does by itself crosses to the session workers. */
export function resolveOnFailure(given: OnFailure | undefined, what: string): FailurePolicies {
  if (given === undefined) return {};
  if (typeof given === "string") {
    checkPolicy(given, what);
    if ((given as FailurePolicy) === "deny") throw onlyAroundToolCalls(what);
    return differing(NAMES.map((name) => [name, TOLD_TOO_LATE.includes(name) ? "skip" : given]));
  }
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw invalid(`${what} must be "fail_turn", "skip", or an object of policies by hook name`);
  return differing(
    Object.entries(given).flatMap(([name, policy]): [HookName, FailurePolicy][] => {
      if (!isHookName(name)) throw invalid(unknownName(name, NAMES, what, "hook"));
      if (policy === undefined) return [];
      checkPolicy(policy, `${what}.${name}`);
      if (policy === "deny" && !AROUND_TOOL_CALLS.includes(name)) throw onlyAroundToolCalls(`${what}.${name}`);
      if (policy === "fail_turn" && TOLD_TOO_LATE.includes(name))
        throw invalid(`${what}.${name} can only be "skip": the hook is told of what is stored, and fails nothing`);
      return [[name, policy]];
    }),
  );
}

function differing(policies: readonly (readonly [HookName, FailurePolicy])[]): FailurePolicies {
  const kept = policies.filter(([name, policy]) => policy !== BY_ITSELF[name]);
  return Object.fromEntries(kept.map(([name, policy]) => [HOOK_KINDS[name], policy]));
}

function isHookName(name: string): name is HookName {
  return Object.hasOwn(HOOK_KINDS, name);
}

function checkPolicy(policy: unknown, what: string): void {
  if (POLICIES.includes(policy)) return;
  throw invalid(`${what} must be "fail_turn", "deny" or "skip", not ${String(policy)}`);
}

function onlyAroundToolCalls(what: string): TroupeError {
  return invalid(
    `${what} cannot be "deny": only a tool call can be denied, so it is for beforeToolCall and afterToolCall; use "fail_turn" or "skip" for other hooks`,
  );
}
