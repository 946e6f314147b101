import type { RecordableHistogram } from "node:perf_hooks";
import type { HookKind, PluginManifest, ToolContext } from "../plugin/index.js";
import { hookPhase, type PhaseProbe } from "../trace/index.js";

/** A session's share of one plugin: what was captured last and whether the plugin may have changed it since. */
export interface PluginSlot {
  readonly sessionId: string;
  /** Names this slot on the hook lane; never given twice in a thread. */
  readonly number: number;
  /** Last captured state; what a replaced plugin worker restores from. */
  captured: Uint8Array | undefined;
  /** Captured but not yet committed. */
  unsaved: boolean;
  /** The plugin was called since the last capture. */
  touched: boolean;
  /** An answer with state was lost: what the plugin captured last is not what is here. */
  resync: boolean;
}

export interface HookOptions {
  /** Capture the state with the answer. */
  readonly capture?: boolean;
  readonly signal?: AbortSignal;
}

export interface OperationCall {
  readonly name: string;
  readonly args: unknown;
  /** The session it is about. */
  readonly sessionId: string | undefined;
  readonly signal: AbortSignal;
}

/** One plugin as a session worker sees it, whatever thread runs it. */
export interface PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: ReadonlyMap<HookKind, RecordableHistogram>;
  hook(slot: PluginSlot, kind: HookKind, facts: object, options: HookOptions): unknown;
  tool(slot: PluginSlot, toolName: string, args: unknown, context: ToolContext): unknown;
  operation(slot: PluginSlot, call: OperationCall): Promise<unknown>;
  capture(slot: PluginSlot): Promise<void>;
  closeSession(slot: PluginSlot): void;
  close(): void;
}

let nextSlot = 1;

export function newSlot(sessionId: string, captured: Uint8Array | undefined): PluginSlot {
  return { sessionId, number: nextSlot++, captured, unsaved: false, touched: false, resync: false };
}

export function probesOf(manifest: PluginManifest, probe: PhaseProbe): Map<HookKind, RecordableHistogram> {
  return new Map(manifest.hooks.map((kind) => [kind, probe.phase(hookPhase(kind, manifest.id))]));
}

export function keep(slot: PluginSlot, state: Uint8Array | undefined): void {
  if (state === undefined) return;
  slot.captured = state;
  slot.unsaved = true;
}
