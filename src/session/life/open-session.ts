import {
  canonicalJson,
  type Head,
  type Identity,
  NO_AUTHORITY,
  type PendingInput,
  type StoredAuthority,
  sessionExists,
  TroupeError,
  turnIdOf,
} from "../../kernel/index.js";
import type { OpenedSession } from "../../store/index.js";
import {
  NO_PLUGIN_OPTIONS,
  type OpeningOptions,
  type SessionMaking,
  type SessionPluginOptions,
} from "../calls/index.js";
import { awaitedCalls, leavesNoExecution, unfinishedTurn } from "../journal/index.js";
import type { LifeChart, NewFrame, SessionServices } from "../state/index.js";
import { Session, SessionInputs, viewOf } from "../state/index.js";
import { COMPONENT, ComponentReader, KeptOpening, optionsOfOpening, withoutSecrets } from "../stored/index.js";
import { announceRestored, authorityWith, closeSlots, configFrom, equipmentOf, materialize } from "./equipment.js";
import { planChild, type SessionSnapshot } from "./fork.js";
import { agentOf, checkPlugins, checkSamePlugins, storeAgent } from "./session-agent.js";

interface Opening extends OpeningOptions {
  readonly chart: LifeChart;
  /** `always`: somebody else who has the session loses it. */
  readonly take: "always" | "free";
}

/**
 * Opens a session from the store, or a new one when the store has none. From then on it is this worker's: whoever had it
 * is refused by the store.
 */
export async function openSession(
  services: SessionServices,
  id: string,
  { chart, take, pluginOptions, tenant, metadata, agent, plugins }: Opening,
): Promise<Session> {
  const { store, journals } = services;
  // A stranger must not take the session from its owner before it is refused.
  if (tenant !== undefined) checkTenant(id, await store.head(id), tenant);
  const opened = await store.open(id, { take, journal: journals });
  try {
    const { head } = opened;
    if (tenant !== undefined) checkTenant(id, head, tenant);
    if (plugins !== undefined && head !== undefined) checkSamePlugins(id, head, plugins);
    const reader = new ComponentReader(store, head, opened.components);
    const identity = {
      ...(tenant !== undefined && { tenant }),
      ...(metadata && { metadata }),
      ...(agent !== undefined && { agent }),
      ...(plugins && { plugins: checkPlugins(services, plugins) }),
    };
    const session = await restore(services, {
      id,
      chart,
      opened,
      pluginOptions,
      identity,
      reader,
      keepsOpening: journals,
    });
    if (head !== undefined && metadata !== undefined) await orClosed(session, renameFor(session, metadata));
    if (head !== undefined) await orClosed(session, storeAgent(session));
    return session;
  } catch (error) {
    store.release(id, opened.epoch);
    throw error;
  }
}

/** A session that is open and still cannot be given out leaves nothing of itself with its plugins. */
async function orClosed(session: Session, storing: Promise<void>): Promise<void> {
  try {
    await storing;
  } catch (error) {
    session.hooks.close();
    throw error;
  }
}

/** Throws unless the session is this tenant's, or is not there yet. */
export function checkTenant(sessionId: string, head: Pick<Head, "tenant"> | undefined, tenant: string): void {
  if (head === undefined || head.tenant === tenant) return;
  throw new TroupeError("tenant_mismatch", `Session ${sessionId} is not one of tenant ${tenant}.`, {
    details: { sessionId, tenant },
  });
}

/** Stores what the host finds the session by, when that is something else than before. */
export async function renameFor({ stored }: Session, metadata: Readonly<Record<string, string>>): Promise<void> {
  if (canonicalJson(stored.head?.metadata ?? {}) === canonicalJson(metadata)) return;
  await stored.write(() => ({ operation: "metadata", head: { metadata } }));
}

/** Builds a session from another one: writes its head, never that one's history, and only once its plugins have taken it on. */
export async function adoptSession(
  services: SessionServices,
  id: string,
  {
    chart,
    snapshot,
    making,
  }: { readonly chart: LifeChart; readonly snapshot: SessionSnapshot; readonly making: SessionMaking },
): Promise<Session> {
  const { store } = services;
  // Looked at before it is claimed: a session that exists stays with whoever has it.
  if ((await store.head(id)) !== undefined) throw sessionExists(id);
  const { head, ...planned } = await planChild(services, id, { snapshot, making });
  const unsaved = new Map(planned.components.map(({ hash, bytes }) => [hash, bytes]));
  const reader = new ComponentReader(store, head, unsaved);
  const { epoch, journal } = await store.open(id, { take: "free", journal: services.journals });
  const opened = { epoch, head, journal, opening: undefined };
  const { pluginOptions } = making.authority ?? {};
  try {
    const given = { pluginOptions, identity: {}, keepsOpening: services.journals };
    const session = await restore(services, { id, chart, opened, reader, ...given });
    await orClosed(session, session.stored.found(planned));
    if (!startsEmpty(making)) session.past.inherited = session.past.unstored = snapshot.unstored;
    return session;
  } catch (error) {
    store.release(id, epoch);
    throw error;
  }
}

function startsEmpty({ start }: SessionMaking): boolean {
  return start === undefined || start.kind === "empty";
}

interface Restoring {
  readonly id: string;
  readonly chart: LifeChart;
  readonly opened: Omit<OpenedSession, "components">;
  readonly reader: ComponentReader;
  readonly pluginOptions: SessionPluginOptions | undefined;
  /** What the host says of a new session; `agent` also of one that has none, or whose agent is gone. */
  readonly identity: Identity;
  /** What it is opened with is kept for who takes up what it begins. */
  readonly keepsOpening?: boolean;
}

async function restore(
  services: SessionServices,
  { id, chart, opened, reader, identity, keepsOpening = false, ...given }: Restoring,
): Promise<Session> {
  const { head, epoch, journal } = opened;
  // The turn a crash left behind, if one did.
  const unfinished = journal.length === 0 ? undefined : unfinishedTurn(journal, turnIdOf((head?.turnIndex ?? 0) + 1));
  const agent = agentOf(services, { id, head, unfinished, asked: identity.agent });
  // What the opening before left to be done is done with what that one was given, unless this one is given something.
  const before = journal.length === 0 ? undefined : optionsOfOpening(opened.opening);
  const options = given.pluginOptions ?? before ?? unfinished?.start.pluginOptions ?? NO_PLUGIN_OPTIONS;
  const hasOptions = Object.keys(options).length > 0;
  const pluginOptions = hasOptions ? options : NO_PLUGIN_OPTIONS;
  const stored = (await reader.value<StoredAuthority>(COMPONENT.authority)) ?? NO_AUTHORITY;
  const authority = authorityWith(stored, options);
  // A turn that a crash left behind in a session that was never stored says whose it was.
  const own: Identity = {
    ...identity,
    ...unfinished?.start.identity,
    ...(agent.name !== undefined && { agent: agent.name }),
  };
  const maker = { id, head, own: head ?? own, reader, stored, authority, agent };
  const equipment = await equipmentOf(services, maker, await configFrom(services, maker));
  const { slots, protocol } = equipment;
  try {
    const session = new Session({
      id,
      chart,
      services,
      head,
      epoch,
      identity: own,
      opening: keepsOpening ? keptOpening(services, { id, options, stored: opened.opening }) : undefined,
      equipment,
      pluginOptions,
      inputs: new SessionInputs(await reader.value<readonly PendingInput[]>(COMPONENT.inputs)),
    });
    const execution = unfinished !== undefined && leavesNoExecution(unfinished) ? undefined : COMPONENT.execution;
    await protocol.restore(() => viewOf(session), execution && (await reader.bytes(execution)));
    // What waited for a turn that is no more waits for the next; for one that goes on it goes on waiting.
    if (unfinished === undefined) session.inputs.turnFailed();
    else {
      session.life.found(unfinished);
      // Its calls that wait for an answer can be answered at once.
      for (const [key, kind] of awaitedCalls(id, unfinished)) {
        session.completions.expect(key, kind);
        session.waitingCalls.expect(key);
      }
    }
    await enterLeftFor(session, await reader.value<NewFrame>(COMPONENT.entering));
    await announceRestored(session, head === undefined);
    materialize(session, authority);
    return session;
  } catch (error) {
    closeSlots(services, slots);
    throw error;
  }
}

function keptOpening(
  { store, surfaces }: SessionServices,
  { id, options, stored }: { id: string; options: SessionPluginOptions; stored: OpenedSession["opening"] },
): KeptOpening | undefined {
  if (stored === undefined && options === NO_PLUGIN_OPTIONS) return undefined;
  return new KeptOpening({ store, sessionId: id }, stored, withoutSecrets(options, surfaces.manifests));
}

/** The last turn left for a frame, and a crash came between. One that cannot be entered is left alone, as the turn would have. */
async function enterLeftFor(session: Session, frame: NewFrame | undefined): Promise<void> {
  if (frame === undefined) return;
  try {
    await session.graph.openFrame(frame);
  } catch (error) {
    if (session.life.isStale) throw error;
  }
}
