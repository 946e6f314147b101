import type { EventSink } from "../../../trace/index.js";
import type { PluginLink } from "../plugin-link.js";
import type { OffenceChange } from "./assignment.js";

/** Tells what became of sessions whose calls held threads that are gone. Nobody is told where nobody listens. */
export function tellOffences(
  events: EventSink | undefined,
  links: readonly PluginLink[],
): { readonly onChanged?: (change: OffenceChange) => void } {
  if (events === undefined) return {};
  const onChanged = (change: OffenceChange) => {
    const { session, offences, becomes } = change;
    const plugin = links.map(({ manifest }) => manifest.id).join(", ");
    if (becomes === "quarantined") events.emit({ type: "session_quarantined", session, plugin, offences });
    else events.emit({ type: "session_refused", session, plugin, offences, forMs: change.forMs });
  };
  return { onChanged };
}
