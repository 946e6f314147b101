import {
  type CallLayers,
  contextMessages,
  firstPlace,
  type Json,
  type Message,
  type ModelRequest,
  NO_DIRECTIVES,
  type Part,
  type PromptContribution,
  type PromptLayer,
  type SessionConfig,
  type ToolSpec,
  type TurnDirectives,
  type TurnState,
  turnIdOf,
  type UnstoredMessage,
} from "../../kernel/index.js";
import type { HookKind, ProtocolTurnOptions } from "../../plugin/index.js";
import {
  type AskedTurn,
  askedKey,
  callAt,
  type RecordedCall,
  type RecordedCallRow,
  type RecordedContext,
  type RecordedTurn,
  type TurnJournal,
} from "../journal/index.js";
import type { TurnCatalog } from "../protocol/index.js";
import { isSame, type StoredPart } from "../stored/index.js";
import type { TurnBeginning, TurnRequest, TurnSession } from "./turn-session.js";

/** The hooks that are asked before a turn's first model call, and not again when the turn is taken up. */
export const PREPARING: readonly HookKind[] = [
  "context_transform",
  "before_turn",
  "tool_catalog_contributor",
  "prompt_contributor",
];

interface AskedWithParts {
  readonly session: TurnSession;
  readonly journal: TurnJournal;
  /** What the turn was asked with before a crash. */
  readonly found: AskedTurn | undefined;
  /** It is written down what the turn is asked with. */
  readonly records: boolean;
}

/**
 * What a turn is asked with, on its way into its journal and back: recorded when its model is called first, and at later
 * calls what has changed. A turn that is taken up is asked with what it was asked with, until its own tools change.
 */
export class AskedWith {
  readonly #parts: AskedWithParts;
  /** Of the last call that was written down. */
  #last: RecordedCall | undefined;
  #catalogs: Map<RecordedCall, TurnCatalog> | undefined;
  /** The tools of the session when the turn was taken up, and when it called its model first since. */
  readonly #toolsThen: string;
  /** Of the session's tools, when the turn began. */
  readonly #generationThen: number;
  #catalogThen: string | undefined;
  /** Tools changed since it was taken up: from here on it has those there are. */
  #moved = false;

  constructor(parts: AskedWithParts) {
    this.#parts = parts;
    const { found, session } = parts;
    // What its hooks changed of the session's tools before its first call, they are not asked to change again.
    if (found?.toolState !== undefined && session.tools.generation < found.toolState.generation)
      session.tools.restoreState(found.toolState);
    this.#generationThen = session.tools.generation;
    this.#toolsThen = parts.found === undefined ? "" : toolsOf(parts.session);
  }

  /** It is written down what the turn is asked with. */
  get records(): boolean {
    return this.#parts.records;
  }

  /** The catalog of a call that is asked again, or asked as it would have been; undefined: as the tools are now. */
  catalog(step: number, turnOptions: ProtocolTurnOptions | undefined): TurnCatalog | undefined {
    const { found, session } = this.#parts;
    if (found === undefined || this.#moved) return undefined;
    if (step >= found.answered && this.#hasChanged(step, found.answered)) {
      this.#moved = true;
      return undefined;
    }
    const call = callAt(found, step);
    const known = this.#catalogs?.get(call);
    if (known !== undefined) return known;
    const catalog = session.catalog.recorded(call, turnOptions);
    this.#catalogs ??= new Map();
    this.#catalogs.set(call, catalog);
    return catalog;
  }

  /** The prompt of a call, in the same way. `synced`: it would be made anew for every call. */
  prompt(step: number, synced: boolean): RecordedCall | undefined {
    const { found } = this.#parts;
    if (found === undefined || (synced && step > found.answered)) return undefined;
    return callAt(found, step);
  }

  /** What the first call since is asked with is what it was, or would have been, asked with before the crash. */
  #hasChanged(step: number, first: number): boolean {
    const { session } = this.#parts;
    if (toolsOf(session) !== this.#toolsThen) return true;
    if (step > first) return this.#catalogThen !== session.catalog.version();
    this.#catalogThen = session.catalog.version();
    return false;
  }

  /** Writes down what a call is asked with. Waits for nothing but state that is still with its plugins. */
  record(step: number, call: RecordedCall, turn: () => RecordedTurn): Promise<void> | undefined {
    const { records, found, session, journal } = this.#parts;
    if (!records || step < (found?.answered ?? 0)) return undefined;
    const before = this.#last ?? (found && callAt(found, step));
    this.#last = call;
    if (before !== undefined) {
      const row = this.#row(call, before);
      if (row !== undefined) journal.note(askedKey(step), row);
      return undefined;
    }
    // A turn that an older release left behind is taken up as that would have.
    if (step > 0) return undefined;
    const { tools } = session;
    const toolState = tools.generation === this.#generationThen ? undefined : tools.exportState();
    const row = Object.assign(turn(), toolState && { toolState }, this.#row(call, undefined));
    return journal.noteDone(askedKey(step), row, session.hooks.pluginsWith(...PREPARING));
  }

  /** Undefined when nothing is another than before. */
  #row(call: RecordedCall, before: RecordedCall | undefined): RecordedCallRow | undefined {
    const { stored } = this.#parts.session;
    const part = (name: "system" | "tools" | "offered"): StoredPart | undefined =>
      call[name] === undefined || (before !== undefined && isSame(before[name], call[name]))
        ? undefined
        : stored.asked.row(name, call[name], stored.head);
    const row: { -readonly [F in keyof RecordedCallRow]: RecordedCallRow[F] } = {};
    const [system, tools, offered] = [part("system"), part("tools"), part("offered")];
    if (system !== undefined) row.system = system;
    if (tools !== undefined) row.tools = tools;
    if (offered !== undefined) row.offered = offered;
    else if (before?.offered !== undefined && call.offered === undefined) row.offered = null;
    if (call.volatile !== (before?.volatile ?? "")) row.volatile = call.volatile;
    return Object.keys(row).length > 0 ? row : undefined;
  }
}

function toolsOf({ tools }: TurnSession): string {
  return `${tools.generation}:${tools.overlayRevision}`;
}

/** What a call is asked with beside its messages. `offered`: the tools the provider is told of. */
export function recordedCall(
  { system, volatile }: Pick<RecordedCall, "system" | "volatile">,
  tools: readonly ToolSpec[],
  offered: readonly ToolSpec[],
): RecordedCall {
  return { system, volatile, tools, ...(!isSame(offered, tools) && { offered }) };
}

/** What a turn that is taken up reads of the history: what it read, and what was appended since where it read to the end. */
export async function historyAsked(
  { past, stored }: Pick<TurnSession, "past" | "stored">,
  { context }: AskedTurn,
): Promise<readonly Message[]> {
  if (!("from" in context)) {
    const prepared = { messages: context.pieces };
    return contextMessages(prepared, await past.from(firstPlace(prepared)), turnIdOf(stored.turnIndex + 1));
  }
  const { start, messages } = await past.from(context.from);
  return start === context.from ? messages : messages.slice(context.from - start);
}

/** A turn as what goes for the whole of it is made of. */
interface PreparedTurn {
  readonly session: Pick<TurnSession, "protocol" | "settings">;
  readonly config: SessionConfig;
  readonly request: Pick<TurnRequest, "extras">;
  readonly directives: TurnDirectives;
  readonly inherited: readonly UnstoredMessage[];
  readonly callLayers: CallLayers;
  readonly layers: readonly PromptLayer[];
  readonly state: Pick<TurnState, "issues">;
}

/** What goes for the whole turn. `synced`: what its prompt is made of goes along, because it is made anew. */
export function recordedTurn(
  { session, config, request, directives, inherited, callLayers, state, ...turn }: PreparedTurn,
  {
    context,
    contributions,
    synced,
  }: {
    readonly context: RecordedContext;
    readonly contributions: readonly PromptContribution[];
    readonly synced: boolean;
  },
): RecordedTurn {
  const { maxSteps, noProgressLimit, maxContextTokens, cache, instructions } = config;
  const { turn: _turn, ...calling } = callLayers;
  const { model: named, prompt } = request.extras;
  const model = session.settings.modelName(named);
  const layers = prompt === undefined ? turn.layers : turn.layers.slice(0, -1);
  return {
    protocol: session.protocol.ownerOf("driver"),
    ...(model !== undefined && { model }),
    config: { maxSteps, noProgressLimit, maxContextTokens, cache, ...(synced && { instructions }) },
    calling,
    context,
    ...(inherited.length > 0 && { inherited }),
    ...(directives !== NO_DIRECTIVES && { directives }),
    ...(state.issues.length > 0 && { issues: state.issues }),
    ...(synced && { prompt: { layers, contributions } }),
  };
}

/** What a model is asked, as the journal compares it. What changes every turn is not in it: a clock voids no turn. */
export function envelopeOf(
  { beginning, state }: { readonly beginning: TurnBeginning; readonly state: Pick<TurnState, "messages"> },
  { system, tools }: Pick<ModelRequest, "system" | "tools">,
): Json {
  return {
    model: beginning.model.id,
    system,
    tools: tools.map(({ name }) => name),
    turn: state.messages.map(unmarked) as unknown as Json, // messages are data
  };
}

/**
 * A message as releases had it before messages had a time and results the mark `json`: a turn of theirs that is taken up
 * here asks for the same, and so finds the answer that was paid then.
 */
function unmarked({ at: _at, ...message }: Message): Message {
  if (message.role !== "tool") return message;
  const parts = message.parts.map((part): Part => {
    if (part.type !== "tool_result" || part.json === undefined) return part;
    const { json: _json, ...rest } = part;
    return rest;
  });
  return { ...message, parts };
}
