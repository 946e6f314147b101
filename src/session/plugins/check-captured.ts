import { isRecord, messageOf, TroupeError } from "../../kernel/index.js";
import { decode } from "../../wire/index.js";
import { ANSWER_LIMITS, type Captured } from "../plugin-thread/index.js";

/** Most bytes of captured state a plugin may have for one session. */
const MAX_CAPTURED = ANSWER_LIMITS.bytes;
const MAX_REVISION_DIGITS = 20;

/**
 * What another thread says it captured, copied and looked at: bytes that cannot be read again would be stored with the
 * session and keep it from ever opening, so they are refused with `plugin_capture_failed` while the last good state is
 * still there. `version`: of the plugin as it was loaded; state of another version is not its to write.
 */
export function checkCaptured(given: unknown, of: { readonly plugin: string; readonly version?: string }): Captured {
  const refuse = (why: string, cause?: unknown) =>
    new TroupeError("plugin_capture_failed", `The state captured for ${of.plugin} cannot be kept: ${why}.`, { cause });
  if (!isRecord(given)) throw refuse("it is no capture");
  const { state, unrevised } = given;
  if (state === undefined) return { state, ...(unrevised === true && { unrevised }) };
  if (!(state instanceof Uint8Array)) throw refuse("it is no byte array");
  if (state.byteLength > MAX_CAPTURED) throw refuse(`it has ${state.byteLength} bytes, more than ${MAX_CAPTURED}`);
  // The sender may have kept the memory; what was looked at must be what is stored.
  const bytes = new Uint8Array(state);
  let record: unknown;
  try {
    record = decode(bytes);
  } catch (cause) {
    throw refuse(messageOf(cause), cause);
  }
  const problem = problemOf(record, of.version);
  if (problem !== undefined) throw refuse(problem);
  return { state: bytes, ...(unrevised === true && { unrevised }) };
}

function problemOf(record: unknown, expected: string | undefined): string | undefined {
  if (!isRecord(record)) return "it is no record";
  const { version, revision, blobs = [] } = record;
  if (typeof version !== "string") return "it names no version";
  if (expected !== undefined && version !== expected)
    return `it is of version ${version.slice(0, 40)}, not ${expected}`;
  if (revision !== undefined && !isRevision(revision)) return "its revision is no number";
  if (!Array.isArray(blobs) || !blobs.every(isBlob)) return "its blobs are no list of names and bytes";
  return undefined;
}

function isRevision(revision: unknown): boolean {
  return typeof revision === "string" && revision.length <= MAX_REVISION_DIGITS && /^-?\d+$/.test(revision);
}

function isBlob(blob: unknown): boolean {
  return Array.isArray(blob) && typeof blob[0] === "string" && blob[1] instanceof Uint8Array;
}
