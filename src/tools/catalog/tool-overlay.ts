import { type ToolSpec, TroupeError, toolIdOf } from "../../kernel/index.js";
import type { RegisteredTool, ToolRegistry } from "../dispatch/index.js";
import { sameText } from "./tool-edits.js";

/** Tools a context lays over those of a session: they replace tools of the same id or name. */
export interface ToolOverlay {
  /** Are the session's own tools still there besides? */
  readonly includeBase: boolean;
  /** Registered tools, also those on demand. */
  readonly toolIds: readonly string[];
}

/** An overlay with its tools found. */
export interface ComposedOverlay extends ToolOverlay {
  readonly tools: readonly OverlayTool[];
}

export interface OverlayTool {
  readonly spec: ToolSpec;
  /** Undefined when its source went away. It goes on shadowing: what it replaced must not come back unnoticed. */
  readonly tool: RegisteredTool | undefined;
}

/** The overlay that changes nothing. */
export const NO_OVERLAY: ComposedOverlay = { includeBase: true, toolIds: [], tools: [] };

/** Throws `tool_unknown` or, when two of its tools share a name, `duplicate_tool`. */
export function composeOverlay(base: ToolRegistry, { includeBase, toolIds }: ToolOverlay): ComposedOverlay {
  const unknown = toolIds.filter((id) => base.byId(id) === undefined);
  if (unknown.length > 0) {
    throw new TroupeError("tool_unknown", `There is no tool with the id ${unknown.join(", ")}.`, {
      details: { toolIds: unknown },
    });
  }
  const byName = new Map<string, OverlayTool>();
  for (const id of new Set(toolIds)) {
    const tool = base.byId(id);
    if (tool === undefined) continue;
    if (byName.has(tool.spec.name)) {
      throw new TroupeError("duplicate_tool", `Two tools of the overlay are called ${tool.spec.name}.`, {
        details: { tool: tool.spec.name, toolIds },
      });
    }
    byName.set(tool.spec.name, { spec: tool.spec, tool });
  }
  if (includeBase && byName.size === 0) return NO_OVERLAY;
  return { includeBase, toolIds: [...toolIds], tools: [...byName.values()] };
}

/** The same overlay over another registry. */
export function rebindOverlay(base: ToolRegistry, overlay: ComposedOverlay): ComposedOverlay {
  if (overlay.tools.length === 0) return overlay;
  const tools = overlay.tools.map(({ spec }): OverlayTool => {
    const tool = base.byId(toolIdOf(spec));
    return { spec: tool?.spec ?? spec, tool };
  });
  return { ...overlay, tools };
}

export function sameOverlay(a: ToolOverlay, b: ToolOverlay): boolean {
  return (
    a.includeBase === b.includeBase &&
    a.toolIds.length === b.toolIds.length &&
    a.toolIds.every((id, at) => id === b.toolIds[at])
  );
}

/** Does the model see the same tools, and are the same ones there to be called? */
export function sameOverlayTools({ tools: a }: ComposedOverlay, { tools: b }: ComposedOverlay): boolean {
  return a.every(
    ({ spec, tool }, at) => sameText(spec, b[at]?.spec) && (tool === undefined) === (b[at]?.tool === undefined),
  );
}
