import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MessageChannel } from "node:worker_threads";
import { onTestFinished } from "vitest";
import { systemClock } from "../../src/async/index.js";
import {
  type Commit,
  type CommitReceipt,
  type Message,
  NO_USAGE,
  nodeId,
  type StoreWrite,
  segmentId,
  type TroupeError,
  type WriteResult,
} from "../../src/kernel/index.js";
import { type BackendAtOnce, type StoreBackend, StoreClient, StoreServer } from "../../src/store/index.js";
import { contentHash, encode } from "../../src/wire/index.js";

/** The commit of a session's n-th turn: one message. */
export function turn(sessionId: string, revision: number, components: Commit["components"] = []): Commit {
  const id = segmentId(sessionId, revision);
  const parent = revision === 1 ? null : nodeId(segmentId(sessionId, revision - 1), 0);
  return {
    head: {
      sessionId,
      revision,
      leaf: nodeId(id, 0),
      turnIndex: revision,
      usage: NO_USAGE,
      components: {},
      operation: `${sessionId}/${revision}`,
    },
    expectedRevision: revision - 1,
    epoch: UNCLAIMED,
    segment: { id, bytes: segmentBytes(id, parent, [`message ${revision}`]) },
    components,
  };
}

export function component(...bytes: readonly number[]): Commit["components"][number] {
  const value = new Uint8Array(bytes);
  return { hash: contentHash(value), bytes: value };
}

/** Commits as one batch; each answer is a receipt or the error that refused it. */
export function commit(backend: BackendAtOnce, ...commits: readonly Commit[]): (CommitReceipt | TroupeError)[] {
  return write(backend, ...commits.map((each): StoreWrite => ({ kind: "commit", commit: each }))).map((result) =>
    result.ok ? (result.receipt as CommitReceipt) : result.error,
  );
}

/** The epoch of a write whose session is claimed when it is written. No claim gives this one. */
export const UNCLAIMED = 0;

const claims = new WeakMap<BackendAtOnce, Map<string, number>>();

/** The epoch of a session that a test writes to: claimed when it is first asked for, and once per backend. */
export function epochOf(backend: BackendAtOnce, sessionId: string): number {
  const claimed = claims.get(backend) ?? new Map<string, number>();
  claims.set(backend, claimed);
  const epoch = claimed.get(sessionId) ?? backend.claim(sessionId, { owner: "a test", take: "always" });
  claimed.set(sessionId, epoch);
  return epoch;
}

/** Writes a batch. A write that says no epoch of its own is its session's owner's. */
export function write(backend: BackendAtOnce, ...batch: readonly StoreWrite[]): WriteResult[] {
  return backend.write(batch.map((each) => withEpoch(backend, each)));
}

function withEpoch(backend: BackendAtOnce, write: StoreWrite): StoreWrite {
  if (write.kind === "commit") {
    const { commit } = write;
    if (commit.epoch !== UNCLAIMED) return write;
    return { kind: "commit", commit: { ...commit, epoch: epochOf(backend, commit.head.sessionId) } };
  }
  if (write.kind === "record") {
    const { entry } = write;
    return entry.epoch === UNCLAIMED
      ? { kind: "record", entry: { ...entry, epoch: epochOf(backend, entry.sessionId) } }
      : write;
  }
  if (write.kind === "clear" || write.kind === "delete")
    return write.epoch === UNCLAIMED ? { ...write, epoch: epochOf(backend, write.sessionId) } : write;
  return write;
}

export function segmentBytes(id: string, parent: string | null, texts: readonly string[]): Uint8Array {
  const messages = texts.map(
    (text, i): Message => ({ id: nodeId(id, i), role: "user", parts: [{ type: "text", text }] }),
  );
  return encode({ id, parent, messages });
}

export function textsOf(messages: readonly Message[]): string[] {
  return messages.flatMap(({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")));
}

/** A folder of its own for one test. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "troupe-store-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** What `run` throws; fails the test when it does not. */
export function thrownBy(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

export function dataFile(path: string): string {
  return join(path, "data.mdb");
}

/** Changes a byte of every place where some text stands in a store's file. */
export function damage(path: string, text: string): void {
  const bytes = readFileSync(dataFile(path));
  if (!bytes.includes(text)) throw new Error(`${text} is not in the file`);
  for (let at = bytes.indexOf(text); at !== -1; at = bytes.indexOf(text, at + 1)) bytes[at] = 0x21;
  writeFileSync(dataFile(path), bytes);
}

/** A backend behind its server, with a client on a lane of its own; all closed with the test. */
export function serving(backend: StoreBackend) {
  const server = new StoreServer(backend, systemClock);
  const { port1, port2 } = new MessageChannel();
  server.attach(port1);
  const client = new StoreClient({ clock: systemClock, port: port2, options: { memory: true } });
  onTestFinished(async () => {
    client.close();
    await server.close();
  });
  return { server, client, maintenance: server.maintenance };
}
