import { realpathSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { messageOf, sentence, TroupeError } from "../../kernel/index.js";
import { type ErrorData, encodeError } from "../../wire/index.js";

/** A module whose code runs on a thread beside Troupe's own. */
export interface ModuleOwner {
  readonly kind: "model" | "plugin";
  /** The model's name, empty for the default one; the plugin's id, or its module before it is loaded. */
  readonly name: string;
  /** Its URL, as the host gave it. */
  readonly module: string;
}

/** How many unhandled rejections of one owner are each reported; of more only the 32nd, 64th, 128th and so on. */
const REPORTED = 16;
/** Reports that are kept while there is nobody to tell. */
const MOST_HELD = 16;
const MAX_MESSAGE = 1_000;
const MAX_STACK = 8_000;

type Tell = (report: ErrorData) => void;

/** Rejections that nobody handled. They break no invariant, so the thread goes on, and the host is told whose they are. */
export class FloatingRejections {
  /** Whose code an error can be of. */
  owners: readonly ModuleOwner[] = [];
  /** What goes on: "The session worker". */
  readonly #thread: string;
  readonly #counts = new Map<string, number>();
  /** Reports made before there was a lane, which is while modules are loaded. */
  #held: ErrorData[] = [];
  /** Whom reports can be told to; one of them is. */
  readonly #listeners = new Set<Tell>();

  constructor(thread: string) {
    this.#thread = thread;
  }

  tellTo(tell: Tell): void {
    this.#listeners.add(tell);
    for (const report of this.#held.splice(0)) tell(report);
  }

  /** Whoever listened there is gone. */
  leave(tell: Tell): void {
    this.#listeners.delete(tell);
  }

  rejected(reason: unknown): void {
    const { owner, at } = originOf(reason, this.owners);
    const count = (this.#counts.get(owner?.module ?? "") ?? 0) + 1;
    this.#counts.set(owner?.module ?? "", count);
    if (count > REPORTED && !isPowerOfTwo(count)) return;
    const message = `A promise of ${told(owner, at)} was rejected and nobody handled it: ${sentence(bounded(reason).message)} Await it, or give it a catch. ${this.#thread} goes on.`;
    const details = { owner: owner ?? null, at: at ?? null, count };
    const report = floatingRejection(message, details, bounded(reason));
    const [tell] = this.#listeners;
    if (tell !== undefined) tell(report);
    else if (this.#held.length < MOST_HELD) this.#held.push(report);
  }
}

/** The report of a rejection that nobody handled, as it crosses threads. */
export function floatingRejection(message: string, details: object, cause: unknown): ErrorData {
  return encodeError(new TroupeError("floating_rejection", message, { details: { ...details }, cause }));
}

/** The owner in words, or the place when there is none. */
export function told(owner: ModuleOwner | undefined, at: string | undefined): string {
  if (owner?.kind === "plugin") return `plugin ${owner.name} (${owner.module})`;
  if (owner?.kind === "model") return `the model module ${owner.module}`;
  return at === undefined ? "code that its stack does not name" : `code at ${at}`;
}

/** The owner whose module is nearest to where the error was made, and the nearest place that is not Node's. */
export function originOf(
  error: unknown,
  owners: readonly ModuleOwner[],
): { readonly owner: ModuleOwner | undefined; readonly at: string | undefined } {
  const places = placesIn(error);
  const byPlace = new Map(owners.flatMap((owner) => namesOf(owner.module).map((name) => [name, owner] as const)));
  const file = places.map(({ file: each }) => each).find((each) => byPlace.has(each));
  return { owner: file === undefined ? undefined : byPlace.get(file), at: places[0]?.at };
}

interface Place {
  readonly file: string;
  /** With line and column. */
  readonly at: string;
}

function placesIn(error: unknown): Place[] {
  return (bounded(error).stack ?? "").split("\n").flatMap((line) => {
    const frame = /^\s+at (.*)$/.exec(line)?.[1];
    if (frame === undefined) return [];
    const at = frame.endsWith(")") ? frame.slice(frame.indexOf(" (") + 2, -1) : frame.replace(/^async /, "");
    const file = /^(.*):\d+:\d+$/.exec(at)?.[1];
    return file === undefined || file.startsWith("node:") ? [] : [{ file, at }];
  });
}

/** How stacks name a module: by its URL, links followed; one that is CommonJS by its path. */
function namesOf(module: string): string[] {
  try {
    const url = new URL(module);
    const path = realpathSync(fileURLToPath(url));
    return [module, `${pathToFileURL(path).href}${url.search}${url.hash}`, path];
  } catch {
    return [module];
  }
}

/** What was thrown, as an error of limited size; whatever its getters do. */
export function bounded(thrown: unknown): Error {
  try {
    const error = new Error(messageOf(thrown).slice(0, MAX_MESSAGE));
    const { name, stack } = thrown instanceof Error ? thrown : { name: "Thrown", stack: undefined };
    error.name = String(name).slice(0, MAX_MESSAGE);
    error.stack = typeof stack === "string" ? stack.slice(0, MAX_STACK) : `${error.name}: ${error.message}`;
    return error;
  } catch {
    return new Error("something that cannot be read");
  }
}

function isPowerOfTwo(count: number): boolean {
  return (count & (count - 1)) === 0;
}
