import { checkSessionId, isStorableName } from "../ids.js";
import { isRecord, type Json, type JsonObject, sameJson } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import { invalidTrigger } from "../refusals.js";

/** What a session wants to be told of an event of the outside world. */
export interface SubscribeRequest {
  /** The subscription's name within the session: asked for twice, it is one. Default: the trigger's own. */
  readonly key?: string;
  /** Only events whose payload has these values under these names. Default: all. */
  readonly filter?: JsonObject;
  /** What the session is asked, before the payload. Default: that the event came. */
  readonly input?: string;
}

/** A subscription as it is stored. */
export interface StoredSubscription {
  readonly source: string;
  readonly filter: JsonObject;
  readonly input: string | null;
  readonly since: number;
}

const FIELDS: FieldsOf<SubscribeRequest> = { key: true, filter: true, input: true };
const MAX_KEY = 200;
const MAX_INPUT = 16 * 1024;
const MAX_FILTER = 4 * 1024;
/** The payload becomes part of an input. */
export const MAX_PAYLOAD = 256 * 1024;

/** Throws `invalid_trigger` unless it can name a subscription or an occurrence. */
export function checkTriggerKey(key: unknown): string {
  if (typeof key === "string" && key !== "" && key.length <= MAX_KEY && isStorableName(key)) return key;
  throw invalidTrigger(`its key is a text of 1 to ${MAX_KEY} characters without control characters`);
}

/** How an event is sent: under which key, and to which sessions only. */
export function checkTriggerOptions(options: unknown): {
  readonly key?: string;
  readonly sessions?: readonly string[];
} {
  if (!isRecord(options)) throw invalidTrigger("an event is sent with { key?, sessions? }");
  const unknown = unknownField(options, { key: true, sessions: true }, "an event");
  if (unknown !== undefined) throw invalidTrigger(unknown);
  const { key, sessions } = options;
  if (sessions !== undefined && !Array.isArray(sessions)) throw invalidTrigger("sessions is a list of sessions' ids");
  return {
    ...(key !== undefined && { key: checkTriggerKey(key) }),
    ...(sessions !== undefined && { sessions: sessions.map(checkSessionId) }),
  };
}

/** A request as it is stored. */
export function checkSubscription(
  source: string,
  request: unknown,
  since: number,
): { readonly key: string; readonly stored: StoredSubscription } {
  if (!isRecord(request)) throw invalidTrigger("a subscription is asked for with { key?, filter?, input? }");
  const unknown = unknownField(request, FIELDS, "a subscription");
  if (unknown !== undefined) throw invalidTrigger(unknown);
  const { key = source, filter = {}, input = null } = request;
  if (!isRecord(filter) || size(filter) > MAX_FILTER)
    throw invalidTrigger(`filter is an object of names and values, of up to ${MAX_FILTER} characters as JSON`);
  if (input !== null && (typeof input !== "string" || input.length > MAX_INPUT))
    throw invalidTrigger(`input is a text of up to ${MAX_INPUT} characters`);
  return { key: checkTriggerKey(key), stored: { source, filter: filter as JsonObject, input, since } };
}

/** A payload that can be stored and told. */
export function checkPayload(payload: unknown): Json {
  const length = size(payload);
  if (length > MAX_PAYLOAD)
    throw invalidTrigger(
      length === Number.POSITIVE_INFINITY
        ? "its payload is not plain JSON data"
        : `its payload has ${length} characters as JSON; ${MAX_PAYLOAD} are allowed`,
    );
  return JSON.parse(JSON.stringify(payload)) as Json;
}

/** Characters as JSON; infinitely many of what is no JSON. */
function size(value: unknown): number {
  try {
    return JSON.stringify(value)?.length ?? Number.POSITIVE_INFINITY;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** Does the subscription want this event? */
export function wantsEvent({ filter }: Pick<StoredSubscription, "filter">, payload: Json): boolean {
  const names = Object.keys(filter);
  if (names.length === 0) return true;
  return isRecord(payload) && names.every((name) => sameJson(filter[name], payload[name] as Json | undefined));
}

/** What the session is asked when the event came. */
export function inputOfEvent({ input, source }: Pick<StoredSubscription, "input" | "source">, payload: Json): string {
  const said = input ?? `The event ${source} came.`;
  return payload === null ? said : `${said}\n${JSON.stringify(payload)}`;
}
