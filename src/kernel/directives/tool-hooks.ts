import { TroupeError } from "../errors.js";
import type { Json } from "../json.js";
import { type ApprovalDemand, type ToolOutput, toolFailure } from "../tools/index.js";
import type {
  AbortTurn,
  AfterToolDirective,
  BeforeToolDirective,
  EmitEvents,
  EnqueueMessages,
  Owned,
  ShortCircuitTool,
} from "./directives.js";

/** A directive that decides a tool call without running it (before) or replaces its result (after). */
export type ToolTerminal = Owned<AbortTurn | ShortCircuitTool>;

/** Two plugins wanted different ends for one call; what came of it, told in the name of the later one. */
export interface DirectiveConflict {
  readonly pluginId: string;
  readonly winner: { readonly pluginId: string; readonly directive: TerminalLabel };
  readonly ignored: { readonly pluginId: string; readonly directive: TerminalLabel };
}
export type TerminalLabel = (typeof LABELS)[number];

export interface ToolVerdict {
  readonly terminal: ToolTerminal | undefined;
  /** What the call's record shows when there is a terminal. */
  readonly output: ToolOutput | undefined;
  /** Events and messages: they happen whatever the verdict. */
  readonly effects: readonly Owned<EmitEvents | EnqueueMessages>[];
  readonly conflicts: readonly DirectiveConflict[];
}

export interface BeforeVerdict extends ToolVerdict {
  /** The arguments as the hooks left them. */
  readonly args: Json;
  /** Who wants somebody to be asked before the call runs, in the order of the hooks; each once, with its last word. */
  readonly demands: readonly Owned<ApprovalDemand>[];
}

/**
 * Asks hook number `n`; a hook that is at hand answers without a promise. The hooks behind it up to `end` are asked about
 * the same subject next, unless one replaces it. Of a second look only restrictions count, so what a directive would do
 * at once is not done again.
 */
export type AskHook<S, D> = (
  n: number,
  subject: S,
  look: { readonly second: boolean; readonly end: number },
) => readonly Owned<D>[] | Promise<readonly Owned<D>[]>;

/**
 * The hooks before a call, in order, each with the arguments as they are by then. When one replaces them, every hook
 * before it inspects the new ones once: it can still deny, abort or demand an approval, nothing else of its answer
 * counts, and a second replacement there is a conflict nobody can settle. A later plugin can never undo a denial, nor a
 * demand for an approval.
 */
export async function composeBeforeToolCall(
  original: Json,
  hooks: number,
  ask: AskHook<Json, BeforeToolDirective>,
): Promise<BeforeVerdict> {
  const fold = new TerminalFold("smaller_id");
  const effects: Owned<EmitEvents | EnqueueMessages>[] = [];
  const demands = new Map<string, ApprovalDemand>();
  const look = { second: false, end: hooks };
  let args = original;
  for (let n = 0; n < hooks; n++) {
    const asked = ask(n, args, look);
    for (const owned of asked instanceof Promise ? await asked : asked) {
      const { pluginId, value } = owned;
      switch (value.kind) {
        case "emit_events":
          effects.push({ pluginId, value });
          break;
        case "replace_tool_args":
          args = value.args;
          await reinspect(n, args, ask, fold, (again) => {
            if (again.value.kind === "require_approval") demands.set(again.pluginId, again.value.demand);
            return again.value.kind === "replace_tool_args"
              ? replacementConflict("before_tool_call", pluginId, again.pluginId)
              : undefined;
          });
          break;
        case "require_approval":
          demands.set(pluginId, value.demand);
          break;
        case "create_session":
        case "emit_trace":
          break;
        default:
          fold.add({ pluginId, value });
      }
    }
  }
  return {
    args,
    effects,
    demands: [...demands].map(([pluginId, value]) => ({ pluginId, value })),
    ...fold.verdict(),
  };
}

/**
 * The hooks after a call. A successful short-circuit is a candidate for the result: the hooks before inspect it once,
 * and the first one that passes is what later hooks see. A denial or an abort always wins over it.
 */
export async function composeAfterToolCall(
  original: ToolOutput,
  hooks: number,
  ask: AskHook<ToolOutput, AfterToolDirective>,
): Promise<ToolVerdict> {
  const fold = new TerminalFold("first");
  const effects: Owned<EmitEvents | EnqueueMessages>[] = [];
  const look = { second: false, end: hooks };
  let output = original;
  let replaced = false;
  for (let n = 0; n < hooks; n++) {
    const asked = ask(n, output, look);
    for (const { pluginId, value } of asked instanceof Promise ? await asked : asked) {
      if (value.kind === "emit_events" || value.kind === "enqueue_messages") {
        effects.push({ pluginId, value });
        continue;
      }
      if (value.kind === "create_session" || value.kind === "emit_trace") continue;
      fold.add({ pluginId, value });
      if (value.kind !== "short_circuit_tool" || value.output.status !== "success") continue;
      await reinspect(n, value.output, ask, fold, (again) =>
        again.value.kind === "short_circuit_tool" && again.value.output.status === "success"
          ? replacementConflict("after_tool_call", pluginId, again.pluginId)
          : undefined,
      );
      if (!replaced) output = value.output;
      replaced = true;
    }
  }
  return { effects, ...fold.verdict() };
}

/** Hooks `0` to `n - 1` see what hook `n` made of it; only denials and aborts of theirs count. */
async function reinspect<S, D extends BeforeToolDirective | AfterToolDirective>(
  n: number,
  subject: S,
  ask: AskHook<S, D>,
  fold: TerminalFold,
  conflictWith: (again: Owned<D>) => TroupeError | undefined,
): Promise<void> {
  const look = { second: true, end: n };
  for (let earlier = 0; earlier < n; earlier++) {
    const asked = ask(earlier, subject, look);
    for (const again of asked instanceof Promise ? await asked : asked) {
      const conflict = conflictWith(again);
      if (conflict !== undefined) throw conflict;
      const { pluginId, value } = again;
      if (value.kind === "abort_turn" || (value.kind === "short_circuit_tool" && value.output.status !== "success")) {
        fold.addRestriction({ pluginId, value });
      }
    }
  }
}

/** success < denial < abort of the turn. Of equals: the smaller plugin id (before), the first one said (after). */
class TerminalFold {
  readonly #ties: "smaller_id" | "first";
  #current: ToolTerminal | undefined;
  /** The first denial's own words stay the evidence when an abort displaces it. */
  #denial: ToolOutput | undefined;
  readonly #conflicts: DirectiveConflict[] = [];

  constructor(ties: "smaller_id" | "first") {
    this.#ties = ties;
  }

  add(next: ToolTerminal): void {
    const current = this.#current;
    if (current === undefined) {
      this.#take(next);
      return;
    }
    const wins = this.#beats(next, current);
    if (current.pluginId !== next.pluginId) {
      const [winner, ignored] = wins ? [next, current] : [current, next];
      this.#conflicts.push({ pluginId: next.pluginId, winner: labelled(winner), ignored: labelled(ignored) });
    }
    if (wins) this.#take(next);
  }

  /** A restriction found on reinspection: the plugin that replaced is not in conflict with itself. */
  addRestriction(next: ToolTerminal): void {
    if (this.#current === undefined || this.#beats(next, this.#current)) this.#take(next);
  }

  verdict(): Pick<ToolVerdict, "terminal" | "output" | "conflicts"> {
    const terminal = this.#current;
    return { terminal, output: terminal && this.#outputOf(terminal), conflicts: this.#conflicts };
  }

  #take(next: ToolTerminal): void {
    const { value } = next;
    if (value.kind === "short_circuit_tool" && value.output.status !== "success") this.#denial = value.output;
    this.#current = next;
  }

  #beats(next: ToolTerminal, current: ToolTerminal): boolean {
    const difference = strength(next) - strength(current);
    if (difference !== 0) return difference > 0;
    return this.#ties === "smaller_id" && next.pluginId < current.pluginId;
  }

  #outputOf({ value }: ToolTerminal): ToolOutput {
    if (value.kind === "short_circuit_tool") return value.output;
    return this.#denial ?? toolFailure("permission_denied", value.code, value.message);
  }
}

/** In the order of their strength. */
const LABELS = ["successful_short_circuit", "denied_short_circuit", "abort_turn"] as const;

function strength({ value }: ToolTerminal): 0 | 1 | 2 {
  if (value.kind === "abort_turn") return 2;
  return value.output.status === "success" ? 0 : 1;
}

function labelled(terminal: ToolTerminal): DirectiveConflict["winner"] {
  return { pluginId: terminal.pluginId, directive: LABELS[strength(terminal)] };
}

function replacementConflict(
  site: "before_tool_call" | "after_tool_call",
  replacing: string,
  repeated: string,
): TroupeError {
  const what = site === "before_tool_call" ? "arguments" : "result";
  return new TroupeError(
    `${site}_replacement_conflict`,
    `Plugins ${replacing} and ${repeated} both replace the ${what} of this call, and neither accepts the other's.`,
    { details: { replacingPluginId: replacing, repeatedPluginId: repeated } },
  );
}
