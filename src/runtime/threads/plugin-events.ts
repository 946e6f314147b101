import { messageOf, type TroupeError } from "../../kernel/index.js";
import type { PluginManifest } from "../../plugin/index.js";
import { type EventSink, eventError } from "../../trace/index.js";
import { endedBy, endedByCall, memberOf, wordsFor, workerLost } from "../../wire/index.js";
import type { Death } from "./plugin-host.js";

type Plugins = readonly Pick<PluginManifest, "id">[];

/** A plugin host's thread is gone. One that was ended because somebody asked for it, or needs it no more, is not told. */
export function tellDeath(events: EventSink | undefined, plugins: Plugins, { stage, exit, key, thread }: Death): void {
  const reason = endedBy(stage);
  if (events === undefined || reason === "asked") return;
  const held = endedByCall(stage);
  const plugin = held ? (plugins[memberOf(stage)]?.id ?? idsOf(plugins)) : idsOf(plugins);
  const where = { plugin, thread: `${thread}, ${key}`, held };
  if (reason === "blocked") events.emit({ type: "plugin_blocked", ...where });
  else {
    const error = exit?.error === undefined ? {} : { error: eventError(exit.error) };
    events.emit({ type: "plugin_lost", ...where, reason: reason === "itself" ? "exit" : reason, ...error });
  }
}

/** The warning of a thread that was lost while no call held it; otherwise the call says so. */
export function hostLost(name: string, plugins: Plugins, { stage, exit }: Pick<Death, "stage" | "exit">): TroupeError {
  const reason = endedBy(stage);
  const which =
    reason === "error" ? ` (${messageOf(exit?.error)})` : reason === "exit" ? ` (exit code ${exit?.code})` : "";
  const how = `${wordsFor(reason)}${which} while none of its calls held the thread. The thread is replaced; what its modules kept outside of their state is gone`;
  const details = { pluginIds: plugins.map(({ id }) => id), reason };
  return workerLost(name, how, { details, cause: exit?.error });
}

/** Names a group of plugins by all of its members. */
export function idsOf(plugins: Plugins): string {
  return plugins.map(({ id }) => id).join(", ");
}
