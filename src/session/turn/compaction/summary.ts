import {
  asTroupeError,
  type Message,
  type ModelRequest,
  planCompaction,
  SUMMARY_AUTHOR,
  TroupeError,
  textOf,
  toldOfCuts,
} from "../../../kernel/index.js";
import { completeBeside } from "../../host-services/index.js";
import type { AskedCompactors, Compacted, CompactingSession } from "./compacted.js";
import { transcriptOf } from "./transcript.js";

/** The label its usage is booked under. */
export const SUMMARY_SOURCE = "compaction";

const INSTRUCTIONS = `Sum up this conversation for whoever goes on with it and cannot read it any more. Say what was asked for and why, what was found out (names, numbers, ids and places word for word), what was decided, what was done and with what result, and what is still to be done. Leave out greetings and detours. Answer with the summary alone, and call no tools.`;
const HEADING = "[The conversation up to here, summed up]";
/** How often a conversation that is too long even to be summed up is cut in halves. */
const MAX_CUTS = 7;

/** Sums up what a session's policy does not keep; undefined when it has none, or there is not enough to sum up. */
export async function summarise(session: CompactingSession, asked: AskedCompactors): Promise<Compacted | undefined> {
  const { compaction: policy, maxContextTokens } = session.settings.config;
  if (policy === null || policy.summary === false) return undefined;
  const messages = await session.past.read();
  const plan = planCompaction(messages, { policy, maxContextTokens });
  if (plan === undefined) return undefined;
  const { keep, from } = plan;
  const instructions = asked.instructions ?? policy.instructions ?? INSTRUCTIONS;
  const summary: Summary = { session, asked, instructions };
  try {
    const text = (await inContext(summary, messages.slice(0, from), keep)) ?? (await inParts(summary, messages, plan));
    const node = { kind: "message", message: { role: "user", text: `${HEADING}\n\n${text}` } } as const;
    return { pluginId: SUMMARY_AUTHOR, nodes: [node], keep, from };
  } catch (thrown) {
    const cause = asTroupeError(thrown, "compaction_failed");
    if (asked.signal.aborted || ["budget_spent", "compaction_failed"].includes(cause.code) || session.life.isStale)
      throw cause;
    throw compactionFailed(cause.message, cause);
  }
}

interface Summary {
  readonly session: CompactingSession;
  readonly asked: AskedCompactors;
  readonly instructions: string;
}

/** Asked as the turn's next call would be. Undefined outside of a turn, and when that is too long for the model. */
async function inContext(
  { session, asked, instructions }: Summary,
  messages: readonly Message[],
  keep: number,
): Promise<string | undefined> {
  if (asked.prompt === undefined) return undefined;
  const { attachments, ...prompt } = asked.prompt;
  const history = toldOfCuts(messages);
  const stays = keep === 0 ? "" : `\n\nThe first ${keep} messages stay as they are: sum up what was said behind them.`;
  try {
    return await answered(session, asked.signal, {
      ...prompt,
      history,
      turn: [question(`${instructions}${stays}`)],
      ...(session.past.hasAttachments && { attachments: await session.blobs.of(history, []) }),
    });
  } catch (error) {
    if (isOverflow(error)) return undefined;
    throw error;
  }
}

/** Asked about the conversation as a text; about halves of it, one behind the other, where it is too long. */
async function inParts(
  { session, asked, instructions }: Summary,
  messages: readonly Message[],
  { keep, from }: { readonly keep: number; readonly from: number },
): Promise<string> {
  const waiting = [{ from: keep, to: from }];
  let text = "";
  let cuts = 0;
  for (let part = waiting.shift(); part !== undefined; part = waiting.shift()) {
    const { from, to } = part;
    const before = text === "" ? "" : `What came before, summed up:\n\n${text}\n\nWhat was said then:\n\n`;
    const turn = [question(`${before}${transcriptOf(messages.slice(from, to))}`)];
    try {
      text = await asked.once(`${from}-${to}`, () => answered(session, asked.signal, { system: instructions, turn }));
    } catch (error) {
      if (!isOverflow(error) || to - from < 2 || ++cuts > MAX_CUTS) throw error;
      const middle = from + Math.ceil((to - from) / 2);
      waiting.unshift({ from, to: middle }, { from: middle, to });
    }
  }
  return text;
}

async function answered(
  session: CompactingSession,
  signal: AbortSignal,
  request: Pick<ModelRequest, "system" | "turn"> & Partial<ModelRequest>,
): Promise<string> {
  const response = await completeBeside(session, { ...request, direct: { source: SUMMARY_SOURCE } }, signal);
  const text = textOf(response).trim();
  if (response.reason !== "error" && text !== "") return text;
  throw compactionFailed("the model answered without a summary");
}

function compactionFailed(why: string, cause?: TroupeError): TroupeError {
  const message = `The conversation could not be summed up: ${why}`;
  return new TroupeError("compaction_failed", message, { cause, retryable: cause?.retryable ?? false });
}

function question(text: string): Message {
  return { id: "compaction.0", role: "user", parts: [{ type: "text", text }] };
}

function isOverflow(error: unknown): boolean {
  return error instanceof TroupeError && error.cause instanceof TroupeError && error.cause.code === "context_overflow";
}
