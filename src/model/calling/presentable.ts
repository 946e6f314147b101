import { messageOf, TroupeError } from "../../kernel/index.js";
import { hiddenValues } from "../boundary/index.js";

/** As much of a provider's words as is worth keeping. */
const MAX_CHARS = 4_000;
const HIDDEN = "[hidden]";
const LEFT_OUT = " [… left out …] ";
/** No thread hop carries more. */
const MAX_CAUSES = 8;

/**
 * What providers and gateways echo that must not be read by anybody else: each pattern keeps what names it. Repetitions
 * in front are bounded, so that a body of any size is read in one go.
 */
const SECRETS: readonly (readonly [pattern: RegExp, kept: string])[] = [
  // https://user:password@host
  [/\b([a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/@:]*:[^\s/@]*@/gi, `$1${HIDDEN}@`],
  // ?key=…, &access_token=…
  [/([?&][\w-]{0,40}(?:key|token|secret|signature|password)=)[^&\s"'#]+/gi, `$1${HIDDEN}`],
  // Authorization: Bearer …, authorization=…
  [/\b((?:proxy-)?authorization["']?\s*[:=]\s*["']?)(?:(?:bearer|basic|digest|token)\s+)?[^\s"',;}]+/gi, `$1${HIDDEN}`],
  [/\b(bearer\s+)[\w.~+/=-]{8,}/gi, `$1${HIDDEN}`],
  // x-api-key: …, "api_key": "…", set-cookie: …
  [
    /\b([\w-]{0,40}(?:api[-_]?key|access[-_]?token|secret|password|set-cookie|cookie)["']?\s*[:=]\s*["']?)[^\s"',;}]+/gi,
    `$1${HIDDEN}`,
  ],
  // "Incorrect API key provided: …", "the access token (…) has expired": whatever looks like no word behind it.
  [
    /\b((?:api|access|auth|secret|private)[-_ ]?(?:key|token)\b[^\n]{0,40}?[\s:=("'`])(?=[\w*.+/=-]*\d)[\w*.+/=-]{12,}/gi,
    `$1${HIDDEN}`,
  ],
  // Keys that can be told by their look: OpenAI, Anthropic and those alike, Google, GitHub, Hugging Face, AWS, JWT.
  [/\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|ghs|r8|nvapi)[-_][\w*.-]{8,}/g, HIDDEN],
  [/\bAIza[\w-]{20,}|\bAKIA[A-Z0-9]{12,}|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+/g, HIDDEN],
];

/** Words from outside that may be shown: without secrets, and of a long text the beginning and the end. */
export function presentable(text: string): string {
  let clean = text;
  for (const secret of [...hiddenValues(), ...environmentSecrets()]) clean = clean.replaceAll(secret, HIDDEN);
  for (const [pattern, kept] of SECRETS) clean = clean.replace(pattern, kept);
  if (clean.length <= MAX_CHARS) return clean;
  const half = (MAX_CHARS - LEFT_OUT.length) / 2;
  return clean.slice(0, Math.ceil(half)) + LEFT_OUT + clean.slice(clean.length - Math.floor(half));
}

/** Values of the environment that are secrets by their names, whatever they look like: where providers' keys mostly are. */
function environmentSecrets(): readonly string[] {
  return Object.entries(process.env).flatMap(([name, value]) =>
    /key|token|secret|password|passwd|credential/i.test(name) && value !== undefined && value.length >= 12
      ? [value]
      : [],
  );
}

/** The error as others may see it: itself, unless something in its words or those of its causes must not be shown. */
export function presentableError(error: TroupeError): TroupeError {
  const cause = presentableCause(error.cause);
  const message = presentable(error.message);
  if (message === error.message && cause === error.cause) return error;
  const { code, retryable, details } = error;
  return new TroupeError(code, message, { retryable, details, cause });
}

/** A cause crosses threads with its message and stack; one with something to hide is replaced by what may be shown. */
export function presentableCause(cause: unknown, depth = 0): unknown {
  if (cause === undefined || cause === null) return cause;
  if (depth > MAX_CAUSES) return undefined;
  if (!(cause instanceof Error)) {
    const words = messageOf(cause);
    return presentable(words) === words ? cause : presentable(words);
  }
  const inner = presentableCause(cause.cause, depth + 1);
  const message = presentable(cause.message);
  const stack = presentable(cause.stack ?? "");
  if (message === cause.message && inner === cause.cause && stack === (cause.stack ?? "")) return cause;
  const shown = new Error(message, inner === undefined ? undefined : { cause: inner });
  shown.name = cause.name;
  shown.stack = stack;
  return shown;
}
