import {
  type AttemptRecord,
  type CompactionReason,
  contextTokens,
  isCrowded,
  TroupeError,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
} from "../../../kernel/index.js";
import { cacheOf } from "../model-call.js";
import type { Turn } from "../turn.js";
import { isStoreFailure, issueOf } from "../turn-session.js";
import type { Compacted } from "./compacted.js";
import { askCompactors, openCompacted } from "./compactors.js";

type AskedModel = Extract<TurnEffect, { type: "model" }>;

/** Calls the model, after these attempts of the same call. */
type CallModel = (earlier?: readonly AttemptRecord[]) => TurnEvent | Promise<TurnEvent>;

/** Is a turn's conversation to be looked at before its model is called? Without a policy, and nothing recorded, never. */
export function watchesContext({ config, beginning }: Turn): boolean {
  if (config.compaction !== null) return true;
  return beginning.unfinished?.rows.some(({ key }) => key.startsWith(COMPACTION)) === true;
}

/**
 * Calls the model with a conversation it can read: one that has reached its share of the context is summed up before, and
 * one that the provider refuses as too long once behind it, and then the call is made again. Only what is stored is summed
 * up, never what the turn itself has said. When nothing comes of that, the turn goes on, or ends, as it would without.
 */
export async function callCompacting(turn: Turn, { step }: AskedModel, call: CallModel): Promise<TurnEvent> {
  const before = new Compacting(turn, step);
  await before.takeUp();
  if (await before.isDue()) await before.compact("threshold");
  const event = await call();
  const refused = overflowOf(event);
  if (refused === undefined || turn.request.signal.aborted) return before.tell(event);
  if (!(await before.compact("overflow"))) return before.tell(event);
  const { attempts } = refused;
  const last = attempts.length;
  turn.request.emit({
    type: "model_retry",
    modelCallId: refused.modelCallId,
    step,
    attempt: last,
    code: "context_overflow",
    delayMs: 0,
  });
  return before.tell(await call(attempts.map((each, at) => (at === last - 1 ? { ...each, retry: AT_ONCE } : each))));
}

const AT_ONCE = { delayMs: 0, counted: true } as const;

/** The record of a call that its provider refused as too long before anything of an answer came. */
function overflowOf(event: TurnEvent) {
  if (event.type !== "model_failed" || event.issue.code !== "context_overflow" || event.usage !== undefined)
    return undefined;
  return event.record?.attempts.at(-1)?.outputStarted === false ? event.record : undefined;
}

/** The replay keys of what was made of the conversation in a turn. */
const COMPACTION = "compaction:";

/** What was made of a conversation, and the frame it is in. */
interface Recorded extends Compacted {
  readonly frameId: string;
}

/** What becomes of the conversation before one call of the model. */
class Compacting {
  readonly #turn: Turn;
  readonly #step: number;
  readonly #issues: TurnIssue[] = [];

  constructor(turn: Turn, step: number) {
    this.#turn = turn;
    this.#step = step;
  }

  #key(reason: CompactionReason): string {
    return `${COMPACTION}${this.#step}:${reason}`;
  }

  /** What an earlier life of the turn had made of it before this call: it is not made again, and what comes next reads it. */
  async takeUp(): Promise<void> {
    for (const reason of REASONS) if (this.#turn.journal.has(this.#key(reason))) await this.compact(reason);
  }

  /** Has the context reached its share? A call that was answered before a crash was asked with what it had. */
  async isDue(): Promise<boolean> {
    const { config, journal, compacted, session, history, latestUsage, state } = this.#turn;
    const { compaction: policy, maxContextTokens } = config;
    if (policy === null || maxContextTokens === null || compacted.has("threshold")) return false;
    if (journal.has(`model:${this.#step}`) || session.past.known === 0) return false;
    const counted =
      latestUsage === undefined ? session.past.promptTokens : latestUsage.inputTokens + latestUsage.outputTokens;
    return isCrowded(contextTokens({ counted, history, turn: state.messages }), { maxContextTokens, policy });
  }

  /** Once for each reason in a turn. False when nothing came of it. */
  async compact(reason: CompactionReason): Promise<boolean> {
    const { session, compacted, request } = this.#turn;
    if (compacted.has(reason)) return false;
    compacted.add(reason);
    try {
      const made = await this.#made(reason);
      if (made === undefined) return false;
      await this.#enter(made, reason);
      return true;
    } catch (error) {
      // A turn that cannot be written down goes no further.
      if (isStoreFailure(error) || session.life.isStale) throw error;
      // It was cancelled meanwhile: its call of the model says so.
      if (request.signal.aborted) return false;
      const isPlugins = error instanceof TroupeError && error.code === "plugin_compact";
      this.#issues.push(
        issueOf(isPlugins ? "plugin" : "runtime", isPlugins ? "plugin_compact" : "compaction_failed", error),
      );
      return false;
    }
  }

  /** What the conversation goes on with: written down before anything is done with it, so that nobody is asked, or paid, again. */
  async #made(reason: CompactionReason): Promise<Recorded | undefined> {
    const { journal, session, request } = this.#turn;
    const { made } = await journal.once<{ readonly made?: Recorded }>({
      key: this.#key(reason),
      envelope: () => null,
      run: async () => {
        const made = await askCompactors(session, {
          instructions: null,
          signal: request.signal,
          prompt: await this.#prompt(),
          once: (name, run) => this.#once(`${this.#key(reason)}:${name}`, run),
        });
        return made === undefined ? {} : { made: { ...made, frameId: `frame-${session.stored.revision + 1}` } };
      },
      keep: (value) => (value.made === undefined ? undefined : value),
      changes: () => session.hooks.pluginsWith("context_compactor"),
    });
    return made;
  }

  async #once(key: string, run: () => Promise<string>): Promise<string> {
    const { text } = await this.#turn.journal.once({
      key,
      envelope: () => null,
      run: async () => ({ text: await run() }),
    });
    return text;
  }

  /** What the next call of the model is asked with, but for its messages. */
  async #prompt() {
    const turn = this.#turn;
    const { preamble } = await turn.resolveCatalog();
    return { system: turn.system, tools: preamble.toolSpecs, ...cacheOf(turn) };
  }

  /** Opens its frame, unless an earlier life of the turn has, and reads what of it the model is given. */
  async #enter(made: Recorded, reason: CompactionReason): Promise<void> {
    const turn = this.#turn;
    const { session, request, facts } = turn;
    const { stored, past, services } = session;
    const { frameId, pluginId } = made;
    const isOpen = stored.frameId === frameId || stored.head?.frames?.some((left) => left.frameId === frameId) === true;
    const messagesBefore = isOpen ? undefined : await past.count();
    if (!isOpen) await openCompacted(session, frameId, made);
    await turn.readAgain(this.#key(reason));
    if (messagesBefore === undefined) return;
    const messages = await past.count();
    const told = { reason, frameId, messagesBefore, messages, pluginId };
    request.emit({ type: "context_compacted", ...told });
    services.events?.emit({ type: "context_compacted", session: session.id, turn: facts.turnId, ...told });
  }

  /** What went wrong is told with what came of the call. */
  tell(event: TurnEvent): TurnEvent {
    if (this.#issues.length === 0 || event.type === "cancel") return event;
    return { ...event, issues: [...this.#issues, ...(event.issues ?? [])] };
  }
}

const REASONS: readonly CompactionReason[] = ["threshold", "overflow"];
