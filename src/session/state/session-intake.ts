import { answerKeyOf, type Part, type PendingInput, type ToolOutput } from "../../kernel/index.js";
import { sealEnvelope } from "../../store/index.js";
import { encode } from "../../wire/index.js";
import { attachedTo, COMPONENT, storedParts } from "../stored/index.js";
import type { Session } from "./session.js";
import type { InputRequest } from "./session-parts.js";

/**
 * Lets an input wait: for the running turn when there is one and it may still take it, otherwise for the next. Stored
 * before it is answered.
 */
export async function addInput(session: Session, request: InputRequest): Promise<PendingInput> {
  if (request.items === undefined) return addParts(session, request);
  const { blobs } = session;
  const parts = await storedParts(blobs, request.items);
  try {
    return await addParts(session, request, parts);
  } finally {
    blobs.release(attachedTo(parts));
  }
}

async function addParts(
  session: Session,
  { text, key, boundary }: InputRequest,
  parts?: readonly Part[],
): Promise<PendingInput> {
  const { life, inputs } = session;
  // A turn that is about to be taken up again has its checkpoints before it.
  const { turnId } = life.unstoredTurn ?? life.unfinished ?? {};
  const waitsFor: PendingInput["waitsFor"] =
    boundary === undefined || turnId === undefined ? { kind: "next_turn" } : { kind: "active_turn", turnId, boundary };
  const input = inputs.add({
    id: session.services.clock.uuid(),
    text,
    waitsFor,
    ...(parts !== undefined && { parts }),
    ...(key !== undefined && { key }),
  });
  await session.stored.store("input");
  return input;
}

export async function cancelInput(
  session: Session,
  named: string,
): Promise<"cancelled" | "not_found" | "already_taken"> {
  const result = session.inputs.cancel(named);
  if (result !== "cancelled") return result;
  await session.stored.store("input");
  return result;
}

/** What was left for the first turn; taken once. */
export async function takeFirstInput(session: Session): Promise<string | null> {
  const { stored, inputs } = session;
  if (stored.head?.components[COMPONENT.firstInput] === undefined || inputs.first.dirty) return null;
  const reader = stored.reader();
  // Given up before it is read: whoever asks meanwhile finds it taken.
  inputs.first.change(null);
  const input = await reader.value<string>(COMPONENT.firstInput);
  await session.stored.store("first_input", { leaveToTurn: true });
  return input ?? null;
}

/** Answers a tool call that waits for it; resolves when the answer cannot be lost any more. */
export function completeTool(
  { life, services, stored, completions }: Session,
  key: string,
  output: ToolOutput,
): Promise<void> {
  const { turnId } = life.turn ?? life.unfinished ?? {};
  return completions.complete(key, output, async () => {
    if (!services.journals || turnId === undefined) return;
    await stored.record({ turnId, key: answerKeyOf(key), ...sealEnvelope(null), bytes: encode(output) });
  });
}
