import type { Clock } from "../../async/index.js";
import {
  type Authority,
  type CatalogOverlay,
  checkSessionId,
  type FieldsOf,
  invalidOptions,
  isRecord,
  narrowingProblem,
  readAgentName,
  refusal,
  unknownField,
} from "../../kernel/index.js";
import type { SessionHandle } from "../../plugin/index.js";
import type { SessionMaking } from "../../session/index.js";
import { leastLoaded, type Residence, type Runtime } from "../places/index.js";

export interface ForkOptions {
  /** The child's id. Default: the parent's with a random ending. */
  readonly id?: string;
  /**
   * Where the child's history ends: at the parent's last stored turn (`"leaf"`, the default), or at a node that
   * `session.tree()` lists. Not inside a step, where a tool call has no result yet (`node_unanswered`).
   */
  readonly at?: "leaf" | (string & {});
  /**
   * What the child's plugins begin with: the parent's state as it is now (`"current"`, the default; also for a fork in
   * the past, because older state is not kept), or nothing (`"fresh"`).
   */
  readonly pluginState?: "current" | "fresh";
  /** What the child may not do although its parent can. */
  readonly authority?: Authority;
  /** Another tool catalog overlay than the parent's. */
  readonly catalog?: CatalogOverlay;
  /** Another agent than the parent's, with no more tools and plugins. Default: the parent's. */
  readonly agent?: string;
}

const FORK_OPTIONS: FieldsOf<ForkOptions> = {
  id: true,
  at: true,
  pluginState: true,
  authority: true,
  catalog: true,
  agent: true,
};

/** A fork, as a host asks for it. */
export async function fork(runtime: Runtime, parentId: string, options: ForkOptions): Promise<Residence> {
  runtime.checkOpen();
  if (!isRecord(options as unknown)) throw invalidFork("its options are an object, such as { id, at }");
  const unknown = unknownField(options, FORK_OPTIONS, "a fork", "option");
  if (unknown !== undefined) throw invalidFork(unknown);
  const {
    at = "leaf",
    pluginState = "current",
    authority,
    catalog,
    agent,
    id = childId(parentId, runtime.options.clock),
  } = options;
  if (typeof at !== "string") throw invalidFork('at must be "leaf" or the id of a node');
  if (pluginState !== "current" && pluginState !== "fresh")
    throw invalidFork('pluginState must be "current" or "fresh"');
  const problem = narrowingProblem(options);
  if (problem !== undefined) throw invalidFork(problem);
  checkSessionId(id);
  if (agent !== undefined) readAgentName(agent);
  const making: SessionMaking = {
    start: { kind: "current_session" },
    ...(pluginState === "fresh" && { pluginSource: "fresh" }),
    ...(authority && { authority }),
    ...(catalog && { catalog }),
    ...(agent !== undefined && { agent }),
  };
  const { residence } = await runtime.directory.use(parentId, (parent) =>
    makeSession(runtime, { id, making, from: parent, at: at === "leaf" ? undefined : at }),
  );
  runtime.forks++;
  return residence;
}

export interface NewSession {
  readonly id: string;
  readonly making: SessionMaking;
  /** The session it is made of. */
  readonly from: Residence;
  readonly at?: string | undefined;
}

/** Makes a session of another one, on the worker with the least to do. */
export async function makeSession(
  runtime: Runtime,
  { id, making, from, at }: NewSession,
): Promise<{ readonly residence: Residence; readonly made: SessionHandle }> {
  runtime.checkOpen();
  const { directory } = runtime;
  const worker = leastLoaded(directory.loads(), from.worker);
  let made: SessionHandle | undefined;
  const residence = await directory.moveIn(id, worker, async (residence) => {
    const { snapshot } = await runtime.worker(from.worker).ask("capture", { sessionId: from.id, at });
    made = await runtime
      .worker(residence.worker)
      .ask("adopt", { sessionId: id, snapshot, making }, { transfer: [snapshot.buffer] });
  });
  return { residence, made: made as unknown as SessionHandle };
}

export function childId(parentId: string, clock: Clock): string {
  return `${parentId.slice(0, 200)}/${clock.uuid().slice(0, 8)}`;
}

const invalidFork = refusal("invalid_fork", "The session cannot be forked");

/** Makes several forks of one place. When one cannot be made, those that were are closed again. */
export async function forkMany<S extends { close(): Promise<void> }>(
  count: number,
  { id, ...options }: ForkOptions,
  make: (options: ForkOptions) => Promise<S>,
): Promise<readonly S[]> {
  if (!Number.isSafeInteger(count) || count < 1)
    throw invalidOptions(`A session is forked once or more often, not ${count} times`);
  const ids = Array.from({ length: count }, (_, n) => (id === undefined ? {} : { id: `${id}/${n + 1}` }));
  const forks = await Promise.allSettled(ids.map((own) => make({ ...options, ...own })));
  const children = forks.flatMap((fork) => (fork.status === "fulfilled" ? [fork.value] : []));
  const failed = forks.find((fork) => fork.status === "rejected");
  if (failed === undefined) return children;
  await Promise.allSettled(children.map((child) => child.close()));
  throw failed.reason;
}
