import { randomUUID } from "node:crypto";
import {
  addUsage,
  type Commit,
  type Head,
  type Message,
  NO_USAGE,
  nodeId,
  segmentId,
  TroupeError,
  type TurnSummary,
} from "../kernel/index.js";
import type { Model } from "../model/index.js";
import { type PluginManifest, sameMajor } from "../plugin/index.js";
import type { StoreClient } from "../store/index.js";
import type { ToolHome, ToolRegistry } from "../tools/index.js";
import { contentHash, decode, encode } from "../wire/index.js";
import type { HookTable } from "./hook-table.js";
import { SessionHooks } from "./hooks.js";
import { versionOfCaptured } from "./plugin-instance.js";
import { newSlot, type PluginSlot } from "./plugin-link.js";
import type { Authority } from "./protocol.js";

/** What every session of a worker shares. */
export interface SessionServices {
  readonly store: StoreClient;
  readonly model: Model;
  readonly table: HookTable;
  readonly registry: ToolRegistry;
  readonly homes: { readonly host: ToolHome; readonly plugin: ToolHome; readonly pool: ToolHome };
  readonly instructions: string;
  readonly maxSteps: number;
  readonly mailboxLimit: number;
}

/** The tools of a session that differ from the worker's: what its authority hides. */
interface ToolState {
  readonly hidden: readonly string[];
}

/** What a fork takes along: references to what is stored, and the bytes of what is not. */
export interface SessionSnapshot {
  readonly parent: { readonly sessionId: string; readonly leaf: string | null };
  readonly turnIndex: number;
  readonly components: Readonly<Record<string, string>>;
  /** Component name → bytes, for state that changed since the last commit. */
  readonly unsaved: Readonly<Record<string, Uint8Array>>;
}

const TOOLS = "tools";
const NOTHING_UNSAVED: ReadonlyMap<string, Uint8Array> = new Map();
const pluginComponent = (pluginId: string) => `plugin:${pluginId}`;

/** One session's state on its worker: the head, the history (once something needs it), its plugins' slots. */
export class Session {
  readonly id: string;
  readonly services: SessionServices;
  readonly hooks: SessionHooks;
  readonly hiddenTools: ReadonlySet<string>;
  #head: Head | undefined;
  #history: Message[] | undefined;
  #stale = false;

  private constructor(
    services: SessionServices,
    parts: { id: string; head: Head | undefined; hooks: SessionHooks; hidden: readonly string[] },
  ) {
    this.id = parts.id;
    this.services = services;
    this.hooks = parts.hooks;
    this.hiddenTools = new Set(parts.hidden);
    this.#head = parts.head;
  }

  /** Opens a session from the store, or a new one when the store has none. */
  static async open(services: SessionServices, id: string): Promise<Session> {
    const head = await services.store.head(id);
    return Session.#restore(services, id, head);
  }

  /** Builds the child of a fork: writes its head, never its history, and that only once its plugins have taken it on. */
  static async adopt(
    services: SessionServices,
    id: string,
    snapshot: SessionSnapshot,
    authority: Authority,
  ): Promise<Session> {
    if ((await services.store.head(id)) !== undefined) {
      throw new TroupeError("session_exists", `There is already a session ${id}.`, { details: { sessionId: id } });
    }
    const components = { ...snapshot.components };
    const unsaved = new Map<string, Uint8Array>();
    const put = (name: string, value: Uint8Array) => {
      const hash = contentHash(value);
      components[name] = hash;
      unsaved.set(hash, value);
    };
    for (const [name, value] of Object.entries(snapshot.unsaved)) put(name, value);
    const inherited = await hiddenOf(services.store, components[TOOLS]);
    // A child can narrow what its parent could do, never widen it.
    const hidden = [...new Set([...inherited, ...(authority.hiddenTools ?? [])])].sort();
    if (hidden.length > 0) put(TOOLS, encode({ hidden } satisfies ToolState));
    const head: Head = {
      sessionId: id,
      revision: 1,
      leaf: snapshot.parent.leaf,
      turnIndex: snapshot.turnIndex,
      usage: NO_USAGE,
      components,
      operation: `fork:${snapshot.parent.sessionId}:${randomUUID()}`,
      parent: snapshot.parent,
    };
    const session = await Session.#restore(services, id, head, unsaved);
    try {
      const bytes = [...unsaved].map(([hash, value]) => ({ hash, bytes: value }));
      await services.store.commit({ head, expectedRevision: 0, components: bytes });
    } catch (error) {
      session.close();
      throw error;
    }
    return session;
  }

  /** `unsaved`: components of the head that are not in the store yet. */
  static async #restore(
    services: SessionServices,
    id: string,
    head: Head | undefined,
    unsaved: ReadonlyMap<string, Uint8Array> = NOTHING_UNSAVED,
  ): Promise<Session> {
    const component = async (name: string) => {
      const hash = head?.components[name];
      if (hash === undefined) return undefined;
      const bytes = unsaved.get(hash) ?? (await services.store.component(hash));
      if (bytes === undefined)
        throw new TroupeError("component_missing", `Session ${id} refers to a stored ${name} that is not there.`);
      return bytes;
    };
    const slots = [];
    for (const { manifest } of services.table.links) {
      const captured = manifest.stateful ? await component(pluginComponent(manifest.id)) : undefined;
      if (captured !== undefined) checkVersion(id, manifest, versionOfCaptured(captured));
      slots.push(newSlot(id, captured));
    }
    const hooks = new SessionHooks(services.table, slots);
    const toolState = await component(TOOLS);
    const hidden = toolState === undefined ? [] : decode<ToolState>(toolState).hidden;
    const session = new Session(services, { id, head, hooks, hidden });
    const issues = await hooks.announce("session_restored", {
      sessionId: id,
      turnIndex: session.turnIndex,
      fresh: head === undefined,
    });
    const issue = issues[0];
    if (issue !== undefined) {
      hooks.close();
      throw new TroupeError("session_restore_failed", `Session ${id} could not be opened: ${issue.message}`, {
        details: { pluginId: issue.pluginId },
      });
    }
    return session;
  }

  /** A commit failed: the session must be opened again before it can go on. */
  get stale(): boolean {
    return this.#stale;
  }

  get turnIndex(): number {
    return this.#head?.turnIndex ?? 0;
  }

  get revision(): number {
    return this.#head?.revision ?? 0;
  }

  get parentId(): string | undefined {
    return this.#head?.parent?.sessionId;
  }

  /** The messages so far, read when a turn first needs them: opening and forking cost the same at any length. */
  async history(): Promise<readonly Message[]> {
    this.#history ??= [...(await this.services.store.history(this.#head?.leaf ?? null))];
    return this.#history;
  }

  /** Stores a turn in one atomic write and adopts it; resolves when it is durable. */
  async commit(summary: TurnSummary, messages: readonly Message[]): Promise<number> {
    const previous = this.#head;
    const revision = this.revision + 1;
    const segment = { id: segmentId(this.id, revision), parent: previous?.leaf ?? null, messages };
    const { components, changed, saved } = this.#changedComponents(previous?.components ?? {});
    const head: Head = {
      sessionId: this.id,
      revision,
      leaf: nodeId(segment.id, messages.length - 1),
      turnIndex: summary.turnIndex,
      usage: addUsage(previous?.usage ?? NO_USAGE, summary.usage),
      components,
      operation: `turn:${summary.turnId}:${randomUUID()}`,
      ...(previous?.parent && { parent: previous.parent }),
    };
    const commit: Commit = {
      head,
      expectedRevision: this.revision,
      segment: { id: segment.id, bytes: encode(segment) },
      components: changed,
    };
    await this.#write(commit);
    // Nothing awaits between the store's word and adopting it.
    this.#head = head;
    this.#history?.push(...messages);
    saved();
    return revision;
  }

  /** Stores plugin state that changed since the last commit; a session that never had a turn stays unstored. */
  async save(): Promise<void> {
    // One plugin whose state cannot be captured does not cost the others theirs.
    const [captured] = await Promise.allSettled([this.hooks.capture()]);
    await this.#saveCaptured();
    if (captured.status === "rejected") throw captured.reason;
  }

  async #saveCaptured(): Promise<void> {
    const previous = this.#head;
    if (previous === undefined) return;
    const { components, changed, saved } = this.#changedComponents(previous.components);
    if (changed.length === 0) return;
    const revision = previous.revision + 1;
    const head: Head = { ...previous, revision, components, operation: `save:${revision}:${randomUUID()}` };
    await this.#write({ head, expectedRevision: previous.revision, components: changed });
    this.#head = head;
    saved();
  }

  /** What a fork needs. State is captured now unless a turn is running: then the child gets the last commit's. */
  async snapshot(options: { readonly live: boolean }): Promise<SessionSnapshot> {
    if (options.live) await this.hooks.capture();
    const unsaved: Record<string, Uint8Array> = {};
    if (options.live) {
      this.services.table.links.forEach(({ manifest }, index) => {
        const slot = this.hooks.slots[index];
        if (slot?.unsaved === true && slot.captured !== undefined)
          unsaved[pluginComponent(manifest.id)] = slot.captured;
      });
    }
    return {
      parent: { sessionId: this.id, leaf: this.#head?.leaf ?? null },
      turnIndex: this.turnIndex,
      components: this.#head?.components ?? {},
      unsaved,
    };
  }

  close(): void {
    this.hooks.close();
  }

  /** Whatever the reason a commit failed for, what is stored may no longer be what is here. */
  async #write(commit: Commit): Promise<void> {
    try {
      await this.services.store.commit(commit);
    } catch (error) {
      this.#stale = true;
      throw error;
    }
  }

  #changedComponents(previous: Readonly<Record<string, string>>): {
    components: Record<string, string>;
    changed: { hash: string; bytes: Uint8Array }[];
    saved: () => void;
  } {
    const components = { ...previous };
    const changed: { hash: string; bytes: Uint8Array }[] = [];
    const written: { slot: PluginSlot; bytes: Uint8Array }[] = [];
    this.services.table.links.forEach(({ manifest }, index) => {
      const slot = this.hooks.slots[index];
      if (slot?.unsaved !== true || slot.captured === undefined) return;
      const hash = contentHash(slot.captured);
      if (components[pluginComponent(manifest.id)] !== hash) changed.push({ hash, bytes: slot.captured });
      components[pluginComponent(manifest.id)] = hash;
      written.push({ slot, bytes: slot.captured });
    });
    const saved = () => {
      for (const { slot, bytes } of written) if (slot.captured === bytes) slot.unsaved = false;
    };
    return { components, changed, saved };
  }
}

async function hiddenOf(store: StoreClient, hash: string | undefined): Promise<readonly string[]> {
  if (hash === undefined) return [];
  const bytes = await store.component(hash);
  if (bytes === undefined)
    throw new TroupeError("component_missing", "The stored tool state of a session is not there.");
  return decode<ToolState>(bytes).hidden;
}

/** Before any plugin is called: state its plugin cannot read is left as it is. */
function checkVersion(sessionId: string, { id, version, migrates }: PluginManifest, stored: string): void {
  if (migrates || sameMajor(stored, version)) return;
  throw new TroupeError(
    "plugin_state_incompatible",
    `Session ${sessionId} has state of plugin ${id} ${stored}, which ${version} cannot read. Give the plugin a migrate(state, fromVersion), or run ${stored}.`,
    { details: { sessionId, pluginId: id, stored, current: version } },
  );
}
