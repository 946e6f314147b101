import {
  type Activity,
  contextMessages,
  firstPlace,
  type Json,
  type Message,
  type PreparedContext,
  type PromptContribution,
  type PromptLayer,
  type TurnEvent,
  type Usage,
  wholeContext,
} from "../../kernel/index.js";
import { mergeTurnOptions, type ProtocolTurnOptions, type TurnFacts } from "../../plugin/index.js";
import type { TurnExtras } from "../calls/index.js";
import { readContributions, readPrepared } from "../plugins/index.js";
import type { TurnCatalog } from "../protocol/index.js";
import { issueOf } from "./issues.js";
import type { TurnSession } from "./turn-session.js";

export interface TurnRequest {
  /** The text of it. */
  readonly input: string;
  readonly emit: (activity: Activity) => void;
  readonly signal: AbortSignal;
  /** What the host brought along besides. */
  readonly extras: TurnExtras;
  /** Whose call it is, when it is a host's. */
  readonly call?: string;
  /** It was asked for before, of a worker that was lost. */
  readonly again?: boolean;
  /** The inputs that waited and begin it. */
  readonly inputIds?: readonly string[];
  /** Nobody holds it: stopped halfway it is refused, and its inputs wait on. */
  readonly keepsInputs?: boolean;
}

/** What the model is given in one turn beside the turn's own messages: the history, the system prompt, the tools. */
export class TurnContext {
  readonly protocolOptions: ProtocolTurnOptions | undefined;
  /** What the model reads before the messages of the turn. */
  messages: readonly Message[];
  system = "";
  /** Of the last model call of the turn. */
  latestUsage: Usage | undefined;
  readonly #session: TurnSession;
  readonly #facts: TurnFacts;
  readonly #request: TurnRequest;
  readonly #layers: readonly PromptLayer[];
  /** What the context's transforms add to the prompt. */
  #contributions: readonly PromptContribution[] = NO_CONTRIBUTIONS;
  #catalog: TurnCatalog | undefined;

  constructor(session: TurnSession, facts: TurnFacts, request: TurnRequest, history: readonly Message[]) {
    this.#session = session;
    this.#facts = facts;
    this.#request = request;
    this.messages = history;
    const { options, prompt } = request.extras;
    this.protocolOptions = mergeTurnOptions(session.protocol.turnOptions, options);
    this.#layers = prompt === undefined ? session.settings.promptLayers : [...session.settings.promptLayers, prompt];
  }

  /** What a plugin is told about the turn's beginning; what the host brought along for it is for nobody else. */
  beginning(pluginId: string): TurnFacts & { readonly input: string; readonly pluginInput: Json } {
    const { input, extras } = this.#request;
    return { ...this.#facts, input, pluginInput: extras.pluginInputs?.[pluginId] ?? null };
  }

  /** The model was called with a catalog before anybody asks for it. */
  get catalog(): TurnCatalog {
    return this.#catalog as TurnCatalog;
  }

  /** The transforms, one after another. They are told how many messages there are, and say which of them they want. */
  async prepare(messageCount: number): Promise<PreparedContext | undefined> {
    const { hooks, settings, past } = this.#session;
    const { promptTokens } = past;
    if (!hooks.has("context_transform")) return undefined;
    const { maxContextTokens } = settings.config;
    let prepared = wholeContext(messageCount);
    await hooks.each(
      "context_transform",
      (pluginId) => ({ ...this.beginning(pluginId), messageCount, promptTokens, maxContextTokens, prepared }),
      (answer, pluginId) => {
        prepared = readPrepared(answer, prepared, { messageCount, pluginId });
      },
      { signal: this.#request.signal },
    );
    // A tool nobody knows refuses the turn and leaves the session's tools as they are.
    this.#session.tools.setOverlay({ includeBase: prepared.includeBaseTools, toolIds: prepared.tools });
    return prepared;
  }

  /** What the transforms left is this turn's context. No more of the history is read than that. */
  async adopt(prepared: PreparedContext): Promise<void> {
    const part = await this.#session.past.from(firstPlace(prepared));
    this.messages = contextMessages(prepared, part, this.#facts.turnId);
    this.#contributions = prepared.promptContributions;
  }

  /** The catalog and the system prompt. Without anybody who contributes it is done at once. */
  prompt(): TurnEvent | Promise<TurnEvent> {
    try {
      const catalog = this.resolveCatalog();
      if (catalog instanceof Promise || this.#session.hooks.has("prompt_contributor"))
        return this.#contributed(catalog);
      return this.#done(catalog, this.#contributions);
    } catch (error) {
      return promptFailed(error);
    }
  }

  async #contributed(resolving: TurnCatalog | Promise<TurnCatalog>): Promise<TurnEvent> {
    try {
      const catalog = await resolving;
      const contributions = [...this.#contributions];
      await this.#session.hooks.each(
        "prompt_contributor",
        (pluginId) => ({ ...this.beginning(pluginId), tools: catalog.names }),
        (answer, pluginId) => contributions.push(...readContributions(answer, pluginId)),
        { signal: this.#request.signal },
      );
      return this.#done(catalog, contributions);
    } catch (error) {
      return promptFailed(error);
    }
  }

  #done(catalog: TurnCatalog, contributions: readonly PromptContribution[]): TurnEvent {
    const { settings, catalog: catalogs } = this.#session;
    const { executionPrompt, promptContributions, syncExecutionEnvironment } = catalog.preamble;
    this.#catalog = catalog;
    this.system = catalogs.prompts.prompt({
      instructions: settings.config.instructions,
      execution: executionPrompt,
      contributions: promptContributions.length === 0 ? contributions : [...contributions, ...promptContributions],
      layers: this.#layers,
      tools: catalog.names,
    });
    return { type: "prompt_done", syncs: syncExecutionEnvironment };
  }

  /** The tools as they are now; at once when none changed. */
  resolveCatalog(): TurnCatalog | Promise<TurnCatalog> {
    return this.#session.catalog.resolve(this.#facts, this.protocolOptions, this.#request.signal);
  }

  use(catalog: TurnCatalog): void {
    this.#catalog = catalog;
  }
}

export function promptFailed(error: unknown): TurnEvent {
  return { type: "prompt_failed", issue: issueOf("plugin", "plugin_prompt", error) };
}

const NO_CONTRIBUTIONS: readonly PromptContribution[] = [];
