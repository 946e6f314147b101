import { deferred, ignore, onAbort } from "../../async/index.js";
import { aborted, invalidToolArgs, type Json, type JsonObject } from "../../kernel/index.js";
import {
  type ContentAnswer,
  contentMadeHere,
  demandOf,
  jsonSchemaOf,
  type Parsed,
  parseEagerly,
  sealAnswer,
  sealContent,
  type ToolContext,
  type ToolDefinition,
  type ToolPolicy,
  thrownByTool,
  toolPolicy,
} from "../../plugin/index.js";
import { plainResult } from "./plain-result.js";
import { CallNotes, type NoteKind, type NoteSink, noteText, resultText } from "./tool-notes.js";

/** A tool definition without its code: what crosses threads when a tool is registered. */
export interface ToolDescription extends ToolPolicy {
  readonly description: string;
  readonly inputSchema: JsonObject;
  /** Its identity when that is not its name. */
  readonly id?: string;
  /** In no catalog until an overlay names it by id. */
  readonly onDemand?: boolean;
}

/**
 * The data of a tool definition. `what` names the tool in the error when its schema cannot be said as JSON Schema.
 *
 * @example
 * describeTool("tool weather", weather); // { description, inputSchema: { type: "object", … } }
 */
export function describeTool(what: string, definition: ToolDefinition): ToolDescription {
  const inputSchema = jsonSchemaOf(definition.inputSchema, what);
  return { description: definition.description, inputSchema, ...toolPolicy(what, definition) };
}

/** What a home knows about a call; how the call is told of is added where its code runs. */
export type CallContext = Omit<ToolContext, "progress">;

/**
 * What every home does with a definition on the thread that holds it: parse the arguments with its Standard Schema,
 * execute, make sure that the result can travel. Synchronous when the schema and the tool are; throws or rejects with
 * `invalid_tool_args`, `tool_result_unserialisable`, or what the tool threw (see {@link thrownByTool}). What the tool says
 * before it answers goes to `sink`, in the name of `about`; without a sink nobody is told.
 *
 * @example
 * const home: ToolHome = { run: (tool, args, ctx) => runHere(definitions[tool.spec.name], args, ctx) };
 */
export function runHere<About>(
  definition: ToolDefinition,
  args: Json,
  ctx: CallContext,
  sink?: NoteSink<About>,
  about?: About,
): Json | Promise<Json> {
  return withParsed(definition, args, (parsed) => execute(definition, parsed, ctx, sink, about));
}

/**
 * The same for what the tool's own code says of a call before it runs: what somebody is to be asked, or null. A tool
 * without such code only has its arguments looked at.
 */
export function askHere(definition: ToolDefinition, args: Json, ctx: CallContext): Json | Promise<Json> {
  const { approval } = definition;
  return withParsed(definition, args, (parsed) => {
    if (typeof approval !== "function") return null;
    // It does not run yet: there is nothing to tell.
    const context: ToolContext = Object.assign(ctx, { progress: ignore });
    const demand = (wish: unknown) => plainResult(demandOf(wish as never));
    let wish: unknown;
    try {
      wish = approval(parsed, context as ToolContext & { readonly options: unknown });
    } catch (thrown) {
      throw thrownByTool(thrown);
    }
    if (!isThenable(wish)) return demand(wish);
    return Promise.resolve(wish).then(demand, (thrown: unknown) => {
      throw thrownByTool(thrown);
    });
  });
}

function withParsed(definition: ToolDefinition, args: Json, run: (parsed: unknown) => Json | Promise<Json>) {
  const parsed = parseEagerly(definition.inputSchema, args);
  return parsed instanceof Promise ? parsed.then((later) => run(fitting(later))) : run(fitting(parsed));
}

function fitting(parsed: Parsed): unknown {
  if (parsed.ok) return parsed.value;
  const { issues } = parsed;
  throw invalidToolArgs(`The arguments do not fit the tool's schema: ${issues.join("; ")}.`, { details: { issues } });
}

function execute<About>(
  definition: ToolDefinition,
  args: unknown,
  ctx: CallContext,
  sink: NoteSink<About> | undefined,
  about: About | undefined,
): Json | Promise<Json> {
  let notes: CallNotes | undefined;
  let isOver = false;
  const add = (kind: NoteKind, value: unknown): void => {
    if (isOver || sink === undefined) return;
    notes ??= new CallNotes(sink.clock, (note) => sink.tell(about as About, note));
    notes.add(kind, kind === "progress" ? noteText(value) : resultText(value));
  };
  const over = (): void => {
    isOver = true;
    notes?.end({ alsoPreliminary: false });
  };
  // Its own property, as the others are: a tool may spread its context.
  const context = ctx as { -readonly [K in keyof ToolContext]: ToolContext[K] };
  context.progress = (value) => add("progress", value);
  let returned: unknown;
  try {
    // Only the pool's tools have options; whose there are none knows nothing of their type.
    returned = definition.execute(args, context as ToolContext & { readonly options: unknown });
  } catch (thrown) {
    over();
    throw thrownByTool(thrown);
  }
  if (!isThenable(returned) && !isAsyncIterable(returned)) {
    over();
    return answerOf(returned);
  }
  const answer = isThenable(returned)
    ? Promise.resolve(returned).then((later) => (isAsyncIterable(later) ? lastOf(later, ctx, add) : later))
    : lastOf(returned, ctx, add);
  return answer.then(
    (value) => {
      over();
      return answerOf(value);
    },
    (thrown: unknown) => {
      over();
      throw thrownByTool(thrown);
    },
  );
}

/**
 * The last value of a tool that yields its result in pieces, or what it returned when it yielded none. Each is told when
 * it comes: which one is the last is known only afterwards. A call that is told to stop ends the iteration, and what had
 * come by then is no result.
 */
async function lastOf(
  yielding: AsyncIterable<unknown>,
  { signal }: CallContext,
  add: (kind: NoteKind, value: unknown) => void,
): Promise<unknown> {
  const iterator = yielding[Symbol.asyncIterator]();
  const stopped = deferred<never>();
  const stop = () => stopped.reject(aborted(signal));
  // A generator that waits for something returns when that has come; it has until the end of the call's grace.
  const letGo = onAbort(signal, () => void returnOf(iterator).then(stop, stop));
  const iterate = async () => {
    let last: { readonly value: unknown } | undefined;
    for (;;) {
      const { done, value } = await iterator.next();
      if (signal.aborted) throw aborted(signal);
      if (done) return last === undefined ? value : last.value;
      last = { value };
      add("preliminary", value);
    }
  };
  try {
    return await Promise.race([iterate(), stopped.promise]);
  } finally {
    letGo();
  }
}

async function returnOf(iterator: AsyncIterator<unknown>): Promise<void> {
  await iterator.return?.();
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return (
    typeof value === "object" &&
    value !== null &&
    typeof (value as { [Symbol.asyncIterator]?: unknown })[Symbol.asyncIterator] === "function"
  );
}

/** As it can travel, and without passing for something the tool did not mean. */
function answerOf(returned: unknown): Json {
  const made = contentMadeHere(returned);
  return made === undefined ? sealAnswer(returned, plainResult(returned)) : sealContent(plainContent(made));
}

/** What is no bytes in it said as JSON. */
function plainContent({ content, value, ...made }: ContentAnswer): ContentAnswer {
  return {
    ...made,
    value: plainResult(value),
    content: content.map((part) => (part.type === "json" ? { ...part, value: plainResult(part.value) } : part)),
  };
}

/** Promises of other libraries count too: a tool may return a query builder. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}
