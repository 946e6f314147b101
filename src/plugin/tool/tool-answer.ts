import {
  ANNOUNCEMENT_KINDS,
  type AnyErrorCode,
  type AppendNode,
  checkNodes,
  foreignError,
  framesOf,
  isMediaType,
  isRecord,
  type Json,
  messageOf,
  problemWithContent,
  refusal,
  type TaskDelivery,
  type TaskRecord,
  type ToolContentPart,
  type ToolControl,
  TroupeError,
  wordsOfContent,
} from "../../kernel/index.js";

/**
 * What a tool can answer besides a value: that the answer comes later, or that the turn ends with it. Only what these
 * functions made counts: data that looks like it, say from a server a tool asked, is data. The mark is a symbol, which
 * neither JSON nor a thread hop can carry; see {@link sealAnswer}.
 */
export type SpecialAnswer =
  | { readonly kind: "pending"; readonly pending: PendingTool }
  | { readonly kind: "control"; readonly value: Json; readonly control: ToolControl }
  | ContentAnswer
  | { readonly kind: "started"; readonly value: Json; readonly started: StartedTask }
  /** A value of the tool's that would read as one of the others. */
  | { readonly kind: "value"; readonly value: Json };

/** Work that goes on behind a call's answer. */
export interface StartedTask {
  readonly taskId: string;
  readonly deliver: TaskDelivery;
}

/** A result of parts. Files are bytes, which JSON cannot say: see {@link contentMadeHere}. */
export interface ContentAnswer {
  readonly kind: "content";
  readonly content: readonly ToolContentPart[];
  /** The result for those who read no parts: code, and hooks that know only values. */
  readonly value: Json;
}

const KEY = "$troupe";
/** Registered, because a tool may have its own copy of this module. */
const MADE_HERE = Symbol.for("troupe.tool_answer");

/** What becomes of a call whose answer comes later. */
export interface PendingTool {
  /** How long to wait for the answer. Default: as long as the turn. */
  readonly deadlineMs?: number;
  /**
   * When nobody has answered by then: `fail_call` (default) lets the model read `tool_completion_timeout` and go on,
   * `fail_turn` ends the turn with it.
   */
  readonly onTimeout?: "fail_call" | "fail_turn";
  /**
   * When the turn is cancelled meanwhile: `cancel` (default) ends the call with it; `wait` lets the cancellation wait for
   * the answer, for what is under way outside and must be recorded. It needs a `deadlineMs`, and ends when the runtime
   * closes.
   */
  readonly onCancel?: "cancel" | "wait";
  /**
   * For whoever is to answer: told with the activity `tool_call_pending` and by `troupe.pending()`. Its `kind` says who
   * that is: `client_tool`, `elicitation`, `approval` or, when nothing is said, `external`. What is no object stands in
   * `value`.
   */
  readonly announcement?: Json;
}

/**
 * What a tool returns when the answer comes later, from outside: a person who approves, a job that ends. The host gives
 * it with `troupe.completeTool(key, output)`; the tool knows the key as `context.completionKey`.
 *
 * @example
 * execute: (args, { completionKey }) => {
 *   askForApproval(completionKey, args);
 *   return pendingTool({ deadlineMs: 3_600_000, onTimeout: "fail_turn" });
 * }
 */
export function pendingTool(pending: PendingTool = {}): Json {
  const { deadlineMs, onTimeout = "fail_call", onCancel = "cancel" } = pending;
  if (deadlineMs !== undefined && !(Number.isSafeInteger(deadlineMs) && deadlineMs >= 1))
    throw toolAnswerInvalid("the deadlineMs of pendingTool must be a whole number from 1");
  if (onTimeout !== "fail_call" && onTimeout !== "fail_turn")
    throw toolAnswerInvalid('the onTimeout of pendingTool is "fail_call" or "fail_turn"');
  if (onCancel !== "cancel" && onCancel !== "wait")
    throw toolAnswerInvalid('the onCancel of pendingTool is "cancel" or "wait"');
  const kind = isRecord(pending.announcement) ? pending.announcement.kind : undefined;
  if (kind !== undefined && !ANNOUNCEMENT_KINDS.some((each) => each === kind))
    throw toolAnswerInvalid(`the kind of an announcement is one of ${ANNOUNCEMENT_KINDS.join(", ")}`);
  if (onCancel === "wait" && deadlineMs === undefined)
    throw toolAnswerInvalid('pendingTool with onCancel "wait" needs a deadlineMs: its turn could never be cancelled');
  return special({ kind: "pending", pending: { ...pending } });
}

/**
 * What a tool throws when nothing was done and it may be asked again: under a retry policy it is, otherwise the model
 * reads the message.
 *
 * @example
 * if (response.status === 503) throw retryTool("The service is busy.", { afterMs: 500 });
 */
export function retryTool(message: string, { afterMs }: { readonly afterMs?: number } = {}): TroupeError {
  return new TroupeError("tool_retry", message, { retryable: true, details: afterMs === undefined ? {} : { afterMs } });
}

/**
 * What a tool throws when it fails and the model is to read why. Of anything else a tool throws the model reads no more
 * than that the tool failed: the words of an exception are for whoever runs the host, who hears of them as `tool_failed`.
 *
 * @example
 * if (order === undefined) throw toolError(`There is no order ${id}. Ask the user for the number on the receipt.`);
 * throw toolError("Refunds above 500 need a manager.", { code: "tool_over_limit" });
 */
export function toolError(
  message: string,
  { code = "tool_error" }: { readonly code?: AnyErrorCode } = {},
): TroupeError {
  if (typeof message !== "string" || message === "") throw toolAnswerInvalid("toolError needs a message for the model");
  if (!CODE.test(code)) throw toolAnswerInvalid("the code of toolError must be snake_case, such as tool_over_limit");
  return foreignError(code, message, { details: { [FOR_MODEL]: true } });
}

const CODE = /^[a-z][a-z0-9_]{0,63}$/;
const FOR_MODEL = "forModel";

/** Did the tool write the words of this error for the model? */
export function isForModel(thrown: unknown): boolean {
  return thrown instanceof TroupeError && (thrown.code === "tool_retry" || thrown.details[FOR_MODEL] === true);
}

/**
 * What a tool's own code threw, as it leaves the tool's thread: marked, so that whatever code it has, its words are not
 * taken for the runtime's and shown to the model.
 */
export function thrownByTool(thrown: unknown): TroupeError {
  if (thrown instanceof TroupeError && isForModel(thrown)) return thrown;
  const details = { [THROWN]: true };
  try {
    const code = thrown instanceof TroupeError && thrown.code.startsWith("tool_") ? thrown.code : "tool_failed";
    const error = new TroupeError(code, messageOf(thrown), { details, cause: thrown });
    if (thrown instanceof Error) error.stack = framesOf(thrown, error);
    return error;
  } catch {
    // A getter or a proxy of the tool's own.
    return new TroupeError("tool_failed", "Something was thrown that cannot be read.", { details });
  }
}

const THROWN = "thrown";

export function isThrownByTool({ details }: TroupeError): boolean {
  return details[THROWN] === true;
}

/**
 * What a tool returns to end the turn with a value: the outcome is `finished`, with the value and the tool's name. The
 * model is not asked again. `text` is the turn's answer in words; by default the value's own.
 *
 * @example
 * execute: (report) => finishTurn(report, { text: report.title })
 */
export function finishTurn(value: Json, { text }: { readonly text?: string } = {}): Json {
  if (value === undefined) throw toolAnswerInvalid("finishTurn needs a value");
  if (text !== undefined && typeof text !== "string")
    throw toolAnswerInvalid("the text of finishTurn must be a string");
  const control: ToolControl = { kind: "finish", value, ...(text !== undefined && { text }) };
  return special({ kind: "control", value, control });
}

/**
 * What a tool returns to end the turn as a failure: the outcome is `stopped` with the reason `tool_error`, this code and
 * message, and the tool's name. To fail the call alone, and let the model read why, throw.
 *
 * @example
 * execute: ({ reason }) => failTurn("not_possible", reason)
 */
export function failTurn(code: string, message: string, { value }: { readonly value?: Json } = {}): Json {
  if (typeof code !== "string" || code === "" || typeof message !== "string")
    throw toolAnswerInvalid("failTurn needs a code and a message");
  const control: ToolControl = { kind: "fail", code, message, ...(value !== undefined && { value }) };
  return special({ kind: "control", value: value ?? `${code}: ${message}`, control });
}

/**
 * A piece of what a tool answers with {@link toolContent}. `data` is bytes, or base64 as APIs give it; a `url` is passed
 * to the provider unread, where the host's `attachments.urls` allow it.
 */
export type ToolContentItem =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "json"; readonly value: Json }
  | ({ readonly type: "image" | "file"; readonly mediaType: string; readonly name?: string } & (
      | { readonly data: Uint8Array | string }
      | { readonly url: string }
    ));

/**
 * What a tool returns when its result is more than a value: texts, JSON, images and files, in their order. The model is
 * given the parts; what its provider cannot take from a tool is said in words. `value` is the result for code and for
 * hooks that read values; by default the parts in words.
 *
 * @example
 * execute: async ({ city }) =>
 *   toolContent([
 *     { type: "text", text: `The map of ${city}:` },
 *     { type: "image", mediaType: "image/png", data: await render(city) },
 *   ])
 */
export function toolContent(items: readonly ToolContentItem[], { value }: { readonly value?: Json } = {}): Json {
  if (!Array.isArray(items)) throw toolAnswerInvalid("toolContent needs a list of parts");
  const content = items.map(contentPart);
  const problem = problemWithContent(content);
  if (problem !== undefined) throw toolAnswerInvalid(problem);
  return special({ kind: "content", content, value: value ?? wordsOfContent(content) });
}

function contentPart(item: ToolContentItem | ToolContentPart): ToolContentPart {
  if (!isFile(item)) return item;
  const { type, mediaType, name } = item;
  if (!isMediaType(mediaType) || (type === "image" && !mediaType.startsWith("image/")))
    throw toolAnswerInvalid(
      `a part of type ${type} needs a mediaType, such as ${type === "image" ? "image/png" : "application/pdf"}`,
    );
  const part = { type: "attachment", mediaType, ...(name !== undefined && { name }) } as const;
  if ("url" in item) return { ...part, source: { kind: "url", url: item.url } };
  return { ...part, source: { kind: "inline", bytes: bytesOf(item.data) } };
}

type FileItem = Extract<ToolContentItem, { type: "image" | "file" }>;

/** Anything else is looked at with the whole. */
function isFile(item: ToolContentItem | ToolContentPart | null): item is FileItem {
  return item?.type === "image" || item?.type === "file";
}

/** A copy: what the tool does with its buffer afterwards changes nothing. */
function bytesOf(data: unknown): Uint8Array {
  if (data instanceof Uint8Array) return new Uint8Array(data);
  if (typeof data !== "string") throw toolAnswerInvalid("the data of an image or a file must be bytes or base64");
  // Node skips what is no base64: only what comes out the same was whole.
  const bytes = Buffer.from(data, "base64");
  if (bytes.toString("base64") !== data.trim() || bytes.length === 0)
    throw toolAnswerInvalid("the data of an image or a file is no base64");
  return new Uint8Array(bytes);
}

/** Where a session goes on, and with what. */
export interface FrameStart {
  /** A name the session has had no frame under. */
  readonly frameId: string;
  /** What is to be done there. Blank: the turn goes on where it is. */
  readonly task: string;
  /** What the new frame begins with. */
  readonly initialNodes?: readonly AppendNode[];
}

/**
 * What a tool returns to end the turn and have the session go on in another frame: the outcome is `frame_switch`. A name
 * that is taken fails the call with `frame_exists`.
 *
 * @example
 * execute: ({ task }, { callId }) => switchFrame({ frameId: `work-${callId}`, task })
 */
export function switchFrame({ frameId, task, initialNodes = [] }: FrameStart): Json {
  if (typeof frameId !== "string" || frameId === "") throw toolAnswerInvalid("switchFrame needs a frameId");
  if (typeof task !== "string") throw toolAnswerInvalid("switchFrame needs a task");
  const nodes = nodesOf(initialNodes);
  const control: ToolControl = { kind: "switch_agent_frame", frameId, task, initialNodes: nodes };
  return special({ kind: "control", value: { frameId, task }, control });
}

/**
 * What a tool returns when what it was asked for goes on as a task: the model reads that it does, goes on, and is told of
 * the end, once: in the running turn or else the next (`steer`, the default), or by a turn of its own (`turn`). With
 * `none` it is not told, and asks with `await_task`. What is awaited is not told again.
 *
 * @example
 * execute: async ({ folder }, { host }) =>
 *   startedTask(await host.spawnManagedTask({ job: "index", input: { folder }, label: `Index ${folder}` }))
 */
export function startedTask(
  task: Pick<TaskRecord, "id" | "state"> & { readonly label?: string },
  { deliver = "steer" }: { readonly deliver?: TaskDelivery } = {},
): Json {
  if (typeof task?.id !== "string" || task.id === "")
    throw toolAnswerInvalid("startedTask needs a task, as host.spawnManagedTask gives it");
  if (!["none", "turn", "steer"].includes(deliver))
    throw toolAnswerInvalid('the deliver of startedTask is "steer", "turn" or "none"');
  const { id, state, label = "" } = task;
  const told = deliver === "none" ? "Ask for its end with await_task." : "You are told when it has ended.";
  const value = { task: id, ...(label !== "" && { label }), state, note: `It goes on in the background. ${told}` };
  return special({ kind: "started", value, started: { taskId: id, deliver } });
}

/** The answer as it leaves the thread of its tool: only what was made here stays special. `plain` is the same as data. */
export function sealAnswer(returned: unknown, plain: Json): Json {
  if (!isMarked(plain) || MADE_HERE in (returned as object)) return plain;
  return { [KEY]: { kind: "value", value: plain } satisfies SpecialAnswer };
}

/** The parts a tool made with {@link toolContent} on this thread; undefined for anything else, whatever it looks like. */
export function contentMadeHere(returned: unknown): ContentAnswer | undefined {
  if (typeof returned !== "object" || returned === null || !(MADE_HERE in returned)) return undefined;
  const answer = (returned as { readonly [KEY]?: SpecialAnswer })[KEY];
  return answer?.kind === "content" ? answer : undefined;
}

/** The parts as they leave their thread. */
export function sealContent(answer: ContentAnswer): Json {
  // Bytes among them: every way from a tool to its session is a structured clone.
  return { [KEY]: answer } as unknown as Json;
}

/** The parts in an answer that came from a tool's thread; undefined when it is another one. */
export function readContent(sealed: unknown): { readonly [F in keyof ContentAnswer]?: unknown } | undefined {
  if (typeof sealed !== "object" || sealed === null || !Object.hasOwn(sealed, KEY)) return undefined;
  const answer = (sealed as { readonly [KEY]?: unknown })[KEY];
  return isRecord(answer) && answer.kind === "content" ? answer : undefined;
}

/** What a sealed answer is when it is no plain value. */
export function readAnswer(sealed: Json): SpecialAnswer | undefined {
  // Made by the functions above, or by `sealAnswer`.
  return isMarked(sealed) ? (sealed[KEY] as unknown as SpecialAnswer) : undefined;
}

function special(answer: SpecialAnswer): Json {
  return { [KEY]: answer as unknown as Json, [MADE_HERE]: true } as Json;
}

function isMarked(value: Json): value is { readonly [KEY]: Json } {
  return typeof value === "object" && value !== null && Object.hasOwn(value, KEY);
}

function nodesOf(nodes: unknown): readonly AppendNode[] {
  try {
    return checkNodes(nodes);
  } catch (error) {
    throw toolAnswerInvalid(messageOf(error));
  }
}

/** Thrown inside the tool that made the mistake, which so fails its call with this code. */
export const toolAnswerInvalid = refusal("tool_answer_invalid", "The tool's answer cannot be used");
