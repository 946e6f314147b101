import type { Json } from "../../kernel/index.js";

/** What one plugin offers to another that it knows only by the extension's id. */
export interface Extension {
  readonly extensionId: string;
  readonly payload: Json;
}

/** Extensions by id, in the order of the plugins that bring them. */
export type Extensions = Readonly<Record<string, readonly Json[]>>;

export function mergeExtensions(extensions: readonly Extension[]): Extensions {
  const merged: Record<string, Json[]> = {};
  for (const { extensionId, payload } of extensions) {
    if (!Object.hasOwn(merged, extensionId)) merged[extensionId] = [];
    merged[extensionId]?.push(payload);
  }
  return merged;
}
