import {
  type BeforeTurnDirective,
  type Directive,
  isToolOutput,
  MAX_INPUT_LENGTH,
  modelOptionsProblem,
  type Owned,
  problemWithDemand,
  toolFailure,
} from "../../kernel/index.js";
import { hookNameOf } from "../../plugin/index.js";
import { checkBounds, checkCount, isRecord, readEvents, refuse } from "./read-answers.js";

type DirectiveKind = Directive["kind"];

export const ALLOWED = {
  before_turn: ["abort_turn", "enqueue_messages", "next_model_call", "create_session", "emit_events", "emit_trace"],
  checkpoint: ["abort_turn", "enqueue_messages", "next_model_call", "create_session", "emit_events", "emit_trace"],
  after_turn: ["enqueue_messages", "create_session", "emit_events", "emit_trace"],
  before_tool_call: [
    "abort_turn",
    "create_session",
    "replace_tool_args",
    "short_circuit_tool",
    "require_approval",
    "emit_events",
    "emit_trace",
  ],
  after_tool_call: [
    "abort_turn",
    "enqueue_messages",
    "create_session",
    "short_circuit_tool",
    "emit_events",
    "emit_trace",
  ],
} as const satisfies Record<string, readonly DirectiveKind[]>;
/** Of `beforeTurn` hooks that say beforehand that they may replace the input. */
const REPLACING: readonly DirectiveKind[] = [...ALLOWED.before_turn, "replace_input"];
export type DirectiveSite = keyof typeof ALLOWED;

const AT_TOOLS: readonly DirectiveSite[] = ["before_tool_call", "after_tool_call"];

export type DirectivesAt<S extends DirectiveSite> = Extract<Directive, { kind: (typeof ALLOWED)[S][number] }>;

export function readDirectives<S extends DirectiveSite>(
  answer: unknown,
  site: S,
  pluginId: string,
  allowed: readonly DirectiveKind[] = ALLOWED[site],
): Owned<DirectivesAt<S>>[] {
  if (answer === undefined || answer === null) return [];
  checkBounds(answer, pluginId);
  const list: readonly unknown[] = Array.isArray(answer) ? answer : [answer];
  checkCount(list, "directives", pluginId);
  return list.map((item) => {
    const directive = checkDirective(item, site, pluginId);
    const misuse = misuseOf(directive, site, allowed);
    if (misuse === undefined) return { pluginId, value: directive as DirectivesAt<S> };
    const refusal = refuse("directive_not_allowed", pluginId, misuse);
    if (!AT_TOOLS.includes(site)) throw refusal;
    // Around a tool call misuse denies that call, and what else the hooks said still counts.
    const output = toolFailure("internal", refusal.code, refusal.message);
    return { pluginId, value: { kind: "short_circuit_tool", output } as unknown as DirectivesAt<S> };
  });
}

/** What a `beforeTurn` hook answers that may replace the input. */
export function readReplacing(answer: unknown, pluginId: string): Owned<BeforeTurnDirective>[] {
  return readDirectives(answer, "before_turn", pluginId, REPLACING) as Owned<BeforeTurnDirective>[];
}

function isAllowed(kind: DirectiveKind, site: DirectiveSite): boolean {
  const allowed: readonly DirectiveKind[] = ALLOWED[site];
  return allowed.includes(kind);
}

/** What an author calls to make a directive of each kind, and what must be given. */
const WRITTEN: { readonly [K in DirectiveKind]: { readonly as: string; readonly needs: string } } = {
  abort_turn: { as: "abortTurn", needs: "a code and a message" },
  enqueue_messages: { as: "enqueueMessages", needs: "messages with a text" },
  next_model_call: { as: "nextModelCall", needs: "model options" },
  replace_input: { as: "replaceInput", needs: "a text" },
  replace_tool_args: { as: "replaceToolArgs", needs: "arguments" },
  short_circuit_tool: { as: "deny, shortCircuitTool", needs: "a value that is plain data, or a code and a message" },
  require_approval: { as: "requireApproval", needs: "nothing, or an announcement and a deadline" },
  emit_events: { as: "emitEvents", needs: "events with a name" },
  create_session: { as: "createSession", needs: "a request" },
  emit_trace: { as: "emitTrace", needs: "a name" },
  handoff_session: { as: "handoff_session", needs: "nothing" },
};

function writtenFor(kinds: readonly DirectiveKind[]): string {
  return kinds.map((kind) => WRITTEN[kind].as).join(", ");
}

/** A denial and an answer are of one kind, and have a function each. */
function writtenAs({ kind, ...directive }: { readonly kind: DirectiveKind; readonly output?: unknown }): string {
  if (kind !== "short_circuit_tool") return WRITTEN[kind].as;
  return isRecord(directive.output) && directive.output.status === "success" ? "shortCircuitTool" : "deny";
}

/** Why a directive, well-formed as it is, cannot be used at this site. */
function misuseOf(directive: Directive, site: DirectiveSite, allowed: readonly DirectiveKind[]): string | undefined {
  if (!allowed.includes(directive.kind)) {
    if (directive.kind === "replace_input" && site === "before_turn") return UNDECLARED;
    const sites = (Object.keys(ALLOWED) as DirectiveSite[]).filter((other) => isAllowed(directive.kind, other));
    const where = sites.length === 0 ? "" : `, which is for ${sites.map(hookNameOf).join(" and ")}`;
    return `${hookNameOf(site)} cannot return ${writtenAs(directive)}${where}; it can return ${writtenFor(allowed)}`;
  }
  if (directive.kind !== "enqueue_messages") return undefined;
  const stranger = directive.messages.find(({ role }) => role !== "user" && role !== "system");
  return stranger && `only user and system messages can be enqueued, not ${String(stranger.role)}`;
}

/** What makes a directive of each kind complete. */
const COMPLETE: { readonly [K in DirectiveKind]: (item: Record<string, unknown>, pluginId: string) => boolean } = {
  abort_turn: ({ code, message }) => typeof code === "string" && typeof message === "string",
  enqueue_messages: ({ messages }, pluginId) => {
    if (!Array.isArray(messages)) return false;
    checkCount(messages, "messages", pluginId);
    if (messages.every((message) => isRecord(message) && typeof message.text === "string")) return true;
    throw refuse("invalid_hook_answer", pluginId, "an enqueued message needs a text");
  },
  next_model_call: ({ options }, pluginId) => {
    const problem = modelOptionsProblem(options);
    if (problem === undefined) return true;
    throw refuse("invalid_hook_answer", pluginId, problem);
  },
  replace_input: ({ text }, pluginId) => {
    if (typeof text !== "string" || text.length <= MAX_INPUT_LENGTH) return typeof text === "string";
    const why = `replaceInput was given ${text.length} characters; ${MAX_INPUT_LENGTH} are allowed`;
    throw refuse("invalid_hook_answer", pluginId, why);
  },
  replace_tool_args: ({ args }) => args !== undefined,
  short_circuit_tool: ({ output }) => isToolOutput(output),
  require_approval: ({ demand }, pluginId) => {
    const problem = problemWithDemand(demand);
    if (problem === undefined) return true;
    throw refuse("invalid_hook_answer", pluginId, `requireApproval: ${problem}`);
  },
  emit_events: ({ events }, pluginId) => readEvents(events, pluginId) !== undefined,
  create_session: ({ request }) => isRecord(request),
  emit_trace: ({ name, context }) => typeof name === "string" && name !== "" && isRecord(context ?? {}),
  handoff_session: () => true,
};

function checkDirective(item: unknown, site: DirectiveSite, pluginId: string): Directive {
  const hook = hookNameOf(site);
  const can = `Return what ${writtenFor(ALLOWED[site])} give, a list of these, or nothing`;
  if (!isRecord(item))
    throw refuse("invalid_hook_answer", pluginId, `${hook} returned ${nounOf(item)}, which is no directive. ${can}`);
  const { kind } = item;
  if (kind === undefined) {
    const given = Object.keys(item).slice(0, MOST_NAMED).join(", ");
    const what = given === "" ? "an empty object" : `an object with ${given}`;
    throw refuse("invalid_hook_answer", pluginId, `${hook} returned ${what}, which is no directive. ${can}`);
  }
  if (typeof kind !== "string" || !Object.hasOwn(COMPLETE, kind))
    throw refuse(
      "invalid_hook_answer",
      pluginId,
      `${hook} returned a directive ${String(kind)}, which there is not. ${can}`,
    );
  if (COMPLETE[kind as DirectiveKind](item, pluginId)) return item as unknown as Directive;
  const { needs } = WRITTEN[kind as DirectiveKind];
  const written = writtenAs(item as unknown as Directive);
  throw refuse("invalid_hook_answer", pluginId, `${hook} returned ${written} without what it needs: ${needs}`);
}

const UNDECLARED =
  "this beforeTurn cannot return replaceInput, because the input is written before it runs; declare it as beforeTurn: { replacesInput: true, run }";

const MOST_NAMED = 5;

function nounOf(value: unknown): string {
  return value === undefined || value === null ? String(value) : `a ${typeof value}`;
}
