import type { RowChange } from "../../kernel/index.js";
import type { ToldBy } from "../calls/index.js";
import { attachedTo, storedParts } from "../stored/index.js";
import type { Session } from "./session.js";
import { placeBy } from "./session-inputs.js";

/**
 * Lets an input that the runtime brings wait for its turn, in one write with the row it comes from: after a
 * crash it was delivered and counted, or neither. One that is skipped is counted alone.
 */
export async function takeDelivered(session: Session, delivery: ToldBy<"deliverInput">): Promise<"taken" | "skipped"> {
  const { inputs, stored, services, blobs } = session;
  const { text, items, rows, source, nth } = delivery;
  const id = services.clock.uuid();
  const parts = items && (await storedParts(blobs, items));
  const unended = () => inputs.pending.filter(({ key }) => isFrom(key, source));
  let outcome: "taken" | "skipped" = "taken";
  try {
    await stored.write(() => {
      outcome = rows.skipped !== undefined && unended().length > 0 ? "skipped" : "taken";
      if (outcome === "taken") {
        if (delivery.replaces) for (const earlier of unended()) inputs.cancel(earlier.id);
        const input = { id, key: `${source}#${nth}`, text, ...(parts && { parts }) };
        if (delivery.steers) inputs.place({ ...input, waitsFor: placeBy(session, "after_work") });
        else inputs.place({ ...input, waitsFor: { kind: "next_turn" }, ownTurn: true });
      }
      const row: RowChange = outcome === "taken" ? rows.taken : (rows.skipped as RowChange);
      return { operation: "delivery", rows: [row], conflicted: () => void inputs.cancel(id) };
    });
  } finally {
    blobs.release(attachedTo(parts ?? []));
  }
  if (outcome === "taken") inputs.onAdded();
  return outcome;
}

/** Has the running turn taken an input of this source? */
export function isTakenUp({ inputs }: Session, source: string): boolean {
  const { pending, untaken } = inputs;
  return pending.some((input) => isFrom(input.key, source) && !untaken.includes(input));
}

function isFrom(key: string | undefined, source: string): boolean {
  return key?.startsWith(`${source}#`) === true;
}
