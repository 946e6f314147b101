import { invalidOptions, isRecord, unknownField } from "../../kernel/index.js";

/** A thread, or what stands for one. */
export type KillTarget =
  | { readonly sessionWorker: number }
  | { readonly plugin: string; readonly host?: number }
  | { readonly processes: true }
  | { readonly store: true };

const TARGETS = { sessionWorker: true, plugin: true, processes: true, store: true } as const;
const WORDS = "kill takes { sessionWorker }, { plugin, host? }, { processes: true } or { store: true }";

/** What is to be killed must be said: a misspelt name must not be taken for something else. */
export function checkKillTarget(target: KillTarget): KillTarget {
  if (!isRecord(target)) throw invalidOptions(WORDS);
  const unknown = unknownField(target, { ...TARGETS, host: true }, "kill", "target");
  if (unknown !== undefined) throw invalidOptions(unknown);
  if (!Object.keys(TARGETS).some((name) => Object.hasOwn(target, name))) throw invalidOptions(WORDS);
  return target;
}
