import { type Part, TroupeError, type TurnConfig } from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import type { TurnExtras } from "../calls/index.js";
import { storedParts } from "../stored/index.js";
import type { TurnSession } from "./turn-session.js";

/** A turn that was asked for with a text and nothing else. */
export const NO_EXTRAS: TurnExtras = Object.freeze({});

/** What a turn begins with, let in: its model, and its input as a message keeps it. */
export interface Admitted {
  readonly model: Model;
  readonly parts: readonly Part[];
  /** The input is of no use: such a turn is recorded, but does nothing. */
  readonly stopped?: NonNullable<TurnConfig["stopped"]>;
}

/** Checks what a turn was asked for with. Throws for what only a program gets wrong; what a user sent is recorded. */
export async function admit(session: TurnSession, input: string, extras: TurnExtras): Promise<Admitted> {
  const model = session.settings.modelNamed(extras.model);
  for (const pluginId of Object.keys(extras.pluginInputs ?? {})) session.hooks.of(pluginId);
  if (extras.extension !== undefined) await session.protocol.validateTurnExtension(extras.extension);
  if (extras.invalid !== undefined) return { model, ...unusable(extras.invalid) };
  if (extras.items === undefined) return { model, parts: extras.parts ?? textParts(input) };
  try {
    return { model, parts: await storedParts(session.blobs, extras.items) };
  } catch (error) {
    if (error instanceof TroupeError && error.code === "invalid_turn_input")
      return { model, ...unusable(error.message) };
    throw error;
  }
}

function unusable(message: string): Omit<Admitted, "model"> {
  const issue = { kind: "input", code: "invalid_turn_input", message } as const;
  return { parts: [], stopped: { reason: "invalid_input", issue } };
}

export function textParts(text: string): readonly Part[] {
  return [{ type: "text", text }];
}
