import { completionKeyOf, type Json, messageOf, toolUnavailable } from "../../kernel/index.js";
import { presentable, secretsFailed } from "../../model/index.js";
import type { HostToolCall, SecretsCall, ToolNoteOf, TraceEvent } from "../../session/index.js";
import { askHere, type CallContext, type NoteSink, packNote, runHere } from "../../tools/index.js";
import type { Lane, ServedCall } from "../../wire/index.js";
import type { ResolvedOptions } from "../options/index.js";

/** The host's own functions, called for a session worker. What one throws is its own affair, and no thread's end. */

/** Given to the one worker that asks, and kept nowhere. */
export async function secretsOf({ secrets }: ResolvedOptions, { tenant }: SecretsCall): Promise<unknown> {
  try {
    return await secrets?.(tenant);
  } catch (cause) {
    // Its own error is no cause: it may quote what it was about to return.
    throw secretsFailed(tenant, presentable(messageOf(cause)));
  }
}

export function tellTrace({ onTrace }: ResolvedOptions, event: TraceEvent): void {
  try {
    onTrace?.(event);
  } catch (error) {
    process.emitWarning(`onTrace threw: ${messageOf(error)}`);
  }
}

/** Where the host's tools say how far they are: to the session worker that called them. */
export function hostNotes({ clock }: ResolvedOptions, lane: () => Lane): NoteSink<ServedCall> {
  return { clock, tell: ({ id }, note) => lane().note("toolNote", [id, ...packNote(note)] satisfies ToolNoteOf) };
}

export function runHostTool(
  { hostTools }: ResolvedOptions,
  [name, args, { asks, ...facts }]: HostToolCall,
  call: ServedCall,
  notes: NoteSink<ServedCall>,
): unknown {
  const tool = hostTools.get(name);
  if (tool === undefined) throw toolUnavailable(`The host has no tool ${name}`);
  const context: CallContext = {
    ...facts,
    get completionKey() {
      return completionKeyOf(facts.sessionId, facts.turnId, facts.callId);
    },
    get signal() {
      return call.signal;
    },
  };
  return asks ? askHere(tool, args as Json, context) : runHere(tool, args as Json, context, notes, call);
}
