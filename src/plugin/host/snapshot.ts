import { nodeCrypto } from "../../async/index.js";

/** A plugin as its snapshots are told apart: who, which version, how often its state has changed. */
export interface PluginRevision {
  readonly id: string;
  readonly version: string;
  readonly revision: bigint;
}

/** What was captured of a plugin, by plugin id. */
export type SnapshotEntries = Readonly<Record<string, { readonly version: string; readonly revision: bigint }>>;

/**
 * Tells whether any plugin's state may have changed, without looking at the state: the first eight bytes, little-endian,
 * of SHA-256 over each plugin's `id 0x00 version 0x00 revision(u64 LE) 0xFF`, in plugin order.
 */
export function snapshotFingerprint(plugins: readonly PluginRevision[]): bigint {
  const hash = nodeCrypto().createHash("sha256");
  const revision = Buffer.alloc(8);
  for (const plugin of plugins) {
    revision.writeBigUInt64LE(BigInt.asUintN(64, plugin.revision));
    hash.update(plugin.id, "utf8").update(NUL).update(plugin.version, "utf8").update(NUL).update(revision).update(END);
  }
  return hash.digest().readBigUInt64LE(0);
}

/** Is a captured snapshot still what the plugins would capture? Compares versions and revisions, never state. */
export function snapshotIsCurrent(previous: SnapshotEntries | undefined, plugins: readonly PluginRevision[]): boolean {
  if (previous === undefined || Object.keys(previous).length !== plugins.length) return false;
  return plugins.every(({ id, version, revision }) => {
    const entry = Object.hasOwn(previous, id) ? previous[id] : undefined;
    return entry?.version === version && entry.revision === revision;
  });
}

/** Can state of one version be handed to another as it is? Only the major number says no. */
export function sameMajor(stored: string, current: string): boolean {
  return stored.split(".")[0] === current.split(".")[0];
}

const NUL = Buffer.from([0x00]);
const END = Buffer.from([0xff]);
