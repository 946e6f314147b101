import {
  type BrokenPiece,
  brokenPiece,
  bytesBefore,
  isVolatile,
  type PromptContribution,
  type PromptLayer,
  type SentPrefix,
  type ToolSpec,
  type TurnIssue,
} from "../../kernel/index.js";
import type { TurnCatalog } from "./catalog.js";

/** What a call's prompt was made of, by who said it. */
export interface PromptSources {
  readonly instructions: string;
  /** The host's and the session's layer, then the turn's. */
  readonly layers: readonly PromptLayer[];
  readonly turnLayer: PromptLayer | undefined;
  /** The plugin that brings the protocol, what it says itself and what it contributes. */
  readonly protocol: {
    readonly pluginId: string;
    readonly execution: string;
    readonly said: readonly PromptContribution[];
  };
  readonly plugins: readonly { readonly pluginId: string; readonly said: readonly PromptContribution[] }[];
}

/** A model call as far as the next one is compared with it. */
export interface WatchedCall extends SentPrefix {
  /** Another model has another cache. */
  readonly route: string;
  readonly sources: PromptSources;
  /** The plugins whose transforms changed what of the history is read. */
  readonly transformedBy: readonly string[];
  /** Where the history begins, and whose it is: another frame, another agent or a window that was cut is a new beginning, and meant to be. */
  readonly beginning: string;
  readonly catalog: Pick<TurnCatalog, "removedBy" | "ownerOf">;
  /** The tools the call's options name; undefined for all. */
  readonly activeTools: readonly string[] | undefined;
  /** The plugins that laid other tools over the session's. */
  readonly overlaidBy: readonly string[];
}

/** No provider keeps a shorter prefix (1,024 tokens of four bytes), so nothing is lost with it. */
const WORTH_KEEPING = 4_096;

/** Compares every model call of a session with the one before and says who broke the prefix. Only in development. */
export class PrefixWatch {
  #last: WatchedCall | undefined;

  /** What the provider's cache was lost by; undefined when this call begins with the one before, or was not meant to. */
  sees(now: WatchedCall): TurnIssue | undefined {
    const before = this.#last;
    this.#last = now;
    if (before === undefined || before.route !== now.route || before.beginning !== now.beginning) return undefined;
    const broken = brokenPiece(before, now);
    if (broken === undefined || bytesBefore(before, WORTH_KEEPING) < WORTH_KEEPING) return undefined;
    return issueOf(causeOf(broken, before, now));
  }
}

interface Cause {
  readonly what: string;
  readonly advice: string;
  readonly pluginId?: string;
}

function issueOf({ what, advice, pluginId }: Cause): TurnIssue {
  return {
    kind: pluginId === undefined ? "runtime" : "plugin",
    code: "cache_prefix_broken",
    message: `The provider cannot read this request from its cache: ${what}. ${advice}`,
    ...(pluginId !== undefined && { pluginId }),
  };
}

function causeOf(broken: BrokenPiece, before: WatchedCall, now: WatchedCall): Cause {
  switch (broken.piece) {
    case "system":
      return systemCause(before.sources, now.sources);
    case "tools":
      return toolsCause(before, now);
    case "message":
      return messageCause(broken.index, now);
  }
}

const SAME_TEXT = "Keep it the same from turn to turn";

function systemCause(before: PromptSources, now: PromptSources): Cause {
  const said = standingBy(now);
  const saidBefore = standingBy(before);
  const pluginId = [...new Set([...said.keys(), ...saidBefore.keys()])].find(
    (id) => said.get(id) !== saidBefore.get(id),
  );
  if (pluginId !== undefined) {
    const what = `plugin ${pluginId} changed what it contributes to the system text`;
    return { what, pluginId, advice: `${SAME_TEXT}, or mark the contribution \`volatile: true\`.` };
  }
  const setting = changedSetting(before, now);
  const advice = `${SAME_TEXT}, or put what changes into the slots runtime_context and environment.`;
  if (setting !== undefined) return { what: `the setting ${setting} changed the system text`, advice };
  return { what: "the tools changed which contributions stand in the system text", advice };
}

/** What each plugin has in the system text, as text. */
function standingBy({ plugins, protocol }: PromptSources): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  const all = [...plugins, { pluginId: protocol.pluginId, said: protocol.said }];
  for (const { pluginId, said } of all) {
    const standing = said.filter((each) => !isVolatile(each));
    if (standing.length > 0) texts.set(pluginId, (texts.get(pluginId) ?? "") + JSON.stringify(standing));
  }
  texts.set(protocol.pluginId, (texts.get(protocol.pluginId) ?? "") + protocol.execution);
  return texts;
}

function changedSetting(before: PromptSources, now: PromptSources): string | undefined {
  if (before.instructions !== now.instructions) return "instructions";
  if (JSON.stringify(before.turnLayer) !== JSON.stringify(now.turnLayer)) return "prompt of the turn";
  if (JSON.stringify(before.layers) !== JSON.stringify(now.layers)) return "prompt";
  return undefined;
}

function toolsCause(before: WatchedCall, now: WatchedCall): Cause {
  const [old, current] = [byName(before.tools), byName(now.tools)];
  const changed = [...new Set([...old.keys(), ...current.keys()])].filter(
    (name) => old.get(name) !== current.get(name),
  );
  const [name = "the tools"] = changed;
  const advice =
    "Offer the same tools in the same order, and refuse a call that must not be made instead of hiding its tool.";
  const how = !old.has(name) ? "was added" : current.has(name) ? "was changed" : "was taken away";
  if (changed.length === 0) return { what: "the tools came in another order", advice };
  const more = changed.length === 1 ? "" : ` (and ${changed.length - 1} more)`;
  if (JSON.stringify(before.activeTools) !== JSON.stringify(now.activeTools))
    return { what: "the setting activeTools changed the tools", advice };
  const pluginId = whoseTool(name, before, now);
  const who = pluginId === undefined ? "" : ` by plugin ${pluginId}`;
  return { what: `the tool ${name}${more} ${how}${who}`, advice, ...(pluginId !== undefined && { pluginId }) };
}

/** Whoever takes tools away or lays others over them, and otherwise who brings the tool. */
function whoseTool(name: string, before: WatchedCall, now: WatchedCall): string | undefined {
  const decided = [now, before].flatMap(
    ({ catalog, overlaidBy }) => catalog.removedBy(name) ?? overlaidBy.at(-1) ?? [],
  );
  return decided[0] ?? now.catalog.ownerOf(name) ?? before.catalog.ownerOf(name);
}

function byName(tools: readonly ToolSpec[]): ReadonlyMap<string, string> {
  return new Map(tools.map((tool) => [tool.name, JSON.stringify(tool)]));
}

function messageCause(index: number, { transformedBy }: WatchedCall): Cause {
  const pluginId = transformedBy.at(-1);
  if (pluginId === undefined)
    return {
      what: `message ${index} of the request is another one`,
      advice: "The history was changed behind the session.",
    };
  const others = transformedBy.slice(0, -1);
  const who = others.length === 0 ? `plugin ${pluginId}` : `plugins ${transformedBy.join(", ")}`;
  return {
    what: `${who} chose other messages of the history, from message ${index} on`,
    advice: "Cut a window in blocks and rarely, or use the option `window`.",
    pluginId,
  };
}
