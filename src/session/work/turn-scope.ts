import {
  foldTurnDirectives,
  NO_DIRECTIVES,
  type Owned,
  TroupeError,
  type TurnDirective,
  type TurnDirectives,
  type TurnIssue,
  type TurnResult,
  type TurnState,
} from "../../kernel/index.js";
import {
  type HookFacts,
  hostFacade,
  RUNTIME_SESSION_HOST,
  type RuntimeSessionHost,
  type TurnFacts,
} from "../../plugin/index.js";
import { performDirectives } from "../host-services/index.js";
import type { TurnJournal, UnfinishedTurn } from "../journal/index.js";
import type { HookOptions } from "../plugins/index.js";
import { AskingCall } from "../plugins/index.js";
import type { TurnKey } from "../stored/index.js";
import type { Admitted } from "./admission.js";
import type { TurnContext, TurnRequest } from "./turn-context.js";
import type { TurnSession } from "./turn-session.js";

/** What a turn begins with. */
export interface TurnBeginning extends Admitted {
  readonly name: TurnKey | undefined;
  /** What came of the turns before it, in the frames it came from. */
  readonly before?: readonly TurnResult[];
  /** It killed its worker too often: it is stored, and no hook sees it. */
  readonly poisoned?: boolean;
  /** Set when a crash left the turn behind. */
  readonly unfinished?: UnfinishedTurn;
}

/** A running turn, as what is done for it sees it. */
export interface TurnScope {
  readonly session: TurnSession;
  readonly request: TurnRequest;
  readonly beginning: TurnBeginning;
  readonly facts: TurnFacts;
  readonly context: TurnContext;
  readonly journal: TurnJournal;
  /** The machine's, as it is now. */
  readonly state: TurnState;
}

/** A site's directives: what is done at once is done, the rest is folded. */
export async function siteDirectives<S extends "before_turn" | "checkpoint" | "after_turn">(
  { session }: TurnScope,
  site: S,
  facts: HookFacts[S] | ((pluginId: string) => HookFacts[S]),
  options: HookOptions = {},
): Promise<TurnDirectives> {
  const directives = await session.hooks.directives(site, facts, options);
  if (directives.length === 0) return NO_DIRECTIVES;
  await performDirectives(session, directives);
  return foldTurnDirectives(directives as readonly Owned<TurnDirective>[]);
}

/** The host services of the protocol: it is part of the turn and may do what the runtime may. */
export function protocolHost(
  { session, state, request: { signal } }: TurnScope,
  { site, pluginId }: { readonly site: "before_llm_call" | "code"; readonly pluginId: string },
): RuntimeSessionHost {
  const asking = new AskingCall(`${site}:${pluginId}:${state.step}`);
  const request = { sessionId: session.id, pluginId, granted: RUNTIME_SESSION_HOST, signal, asking };
  const host = hostFacade(RUNTIME_SESSION_HOST, (method, args) => session.services.host({ ...request, method, args }));
  // The facade has the methods of every interface it was given.
  return host as RuntimeSessionHost;
}

/** The turn does not do what it did before the crash: it is stopped and says where. Anything else refuses it. */
export function replayIssue(error: unknown): TurnIssue {
  if (!(error instanceof TroupeError) || error.code !== "replay_mismatch") throw error;
  return { kind: "runtime", code: error.code, message: error.message };
}
