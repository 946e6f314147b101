import { parseArgs } from "node:util";

export interface RunOptions {
  readonly sessions: number;
  readonly seconds: number;
  /** A folder to keep, memory, or a temporary folder that is removed at the end. */
  readonly store: { readonly kind: "kept"; readonly path: string } | { readonly kind: "memory" | "temporary" };
  readonly seed: number;
}

export type Arguments =
  | { readonly kind: "run"; readonly options: RunOptions }
  | { readonly kind: "help" }
  | { readonly kind: "wrong"; readonly message: string };

export const HELP = `Hosts many agent sessions at once, with three plugins on threads of their own, one of which misbehaves.

Usage: npm start -- [options]

  --sessions N     sessions to host, from 1 to 100000 (default 1000)
  --seconds N      how long to ask for turns, from 1 to 86400 (default 20)
  --store PATH     keep the sessions in this folder; started again, they go on from there
  --store memory   keep them in memory only
                   (default: the embedded store in a temporary folder that is removed at the end)
  --seed N         of the random choices: what is asked, forked and broken (default 1)
  --help           this text

Ctrl-C stops asking, waits for the turns in flight and closes; a second one ends the program at once.
Exit code: 0 when every count is right, 1 when one is not, 2 when the program could not start.
`;

/** Reads the command line; says what is wrong with it instead of throwing. */
export function readArguments(args: readonly string[]): Arguments {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        sessions: { type: "string" },
        seconds: { type: "string" },
        store: { type: "string" },
        seed: { type: "string" },
        help: { type: "boolean" },
      },
    });
    if (values.help === true) return { kind: "help" };
    return {
      kind: "run",
      options: {
        sessions: whole("--sessions", values.sessions, { least: 1, most: 100_000, fallback: 1_000 }),
        seconds: whole("--seconds", values.seconds, { least: 1, most: 86_400, fallback: 20 }),
        store: storeOf(values.store),
        seed: whole("--seed", values.seed, { least: 0, most: 2 ** 32 - 1, fallback: 1 }),
      },
    };
  } catch (error) {
    return { kind: "wrong", message: error instanceof Error ? error.message : String(error) };
  }
}

interface Range {
  readonly least: number;
  readonly most: number;
  readonly fallback: number;
}

function whole(name: string, text: string | undefined, { least, most, fallback }: Range): number {
  if (text === undefined) return fallback;
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= least && value <= most) return value;
  throw new Error(`${name} must be a whole number from ${least} to ${most}, not "${text}".`);
}

function storeOf(text: string | undefined): RunOptions["store"] {
  if (text === undefined) return { kind: "temporary" };
  if (text === "") throw new Error('--store must be a folder or "memory"; it is empty.');
  return text === "memory" ? { kind: "memory" } : { kind: "kept", path: text };
}
