import {
  admitContent,
  attachmentsIn,
  problemWithContent,
  type ResultPart,
  refusal,
  storedContent,
  type ToolContentPart,
  type ToolOutput,
  type ToolRecord,
  TroupeError,
  toolFailure,
} from "../../../kernel/index.js";
import { unfitAnswer } from "../../plugin-thread/index.js";
import { keptSource } from "../../stored/index.js";
import { unfitProjection } from "../stream.js";
import type { Turn } from "../turn.js";

/** A result whose files are attachments of the session; what the host lets nobody attach fails the call. */
export function withKeptContent(turn: Turn, output: ToolOutput): ToolOutput | Promise<ToolOutput> {
  if (output.status !== "success" || output.content === undefined) return output;
  return keepContent(turn, output.content).then(
    (content) => ({ ...output, content }),
    (error: unknown) => {
      if (!(error instanceof TroupeError) || error.code !== INVALID) throw error;
      return toolFailure("execution", error.code, error.message);
    },
  );
}

/** The content with its bytes kept: they are stored with the turn, or never. Throws `tool_content_invalid`. */
export async function keepContent(turn: Turn, content: readonly ToolContentPart[]): Promise<readonly ResultPart[]> {
  const { blobs, services } = turn.session;
  const kept: ToolContentPart[] = [];
  for (const part of content) {
    if (part.type !== "attachment") {
      kept.push(part);
      continue;
    }
    const { source, ...admitted } = admitContent(part, services.attachments, invalid);
    const ref = await keptSource(blobs, source);
    if (ref === undefined) throw invalid("a stored attachment of it is not there");
    if (ref.kind === "stored") turn.attached.push(ref.hash);
    kept.push({ ...admitted, source: ref });
  }
  return storedContent(kept);
}

const INVALID = "tool_content_invalid";
const invalid = refusal(INVALID, "The result's content cannot be used");

/** What the model is given instead of a result, when a projector says so. */
export type Projected = Pick<ToolRecord, "modelText" | "modelContent">;

/** What a projector answers: a text, parts, or nothing. A plugin that knows only text answers text. */
export function readProjection(answer: unknown): string | readonly ToolContentPart[] | undefined {
  if (typeof answer === "string") return answer;
  if (answer === undefined || answer === null) return undefined;
  const problem = Array.isArray(answer) ? (unfitAnswer(answer) ?? problemWithContent(answer)) : `not ${typeof answer}`;
  if (problem !== undefined) throw unfitProjection(`A result projector returns a text or parts: ${problem}`);
  return answer as readonly ToolContentPart[];
}

export async function keptProjection(turn: Turn, projected: unknown): Promise<Projected> {
  if (typeof projected === "string") return { modelText: projected };
  // Read by `readProjection`.
  if (Array.isArray(projected)) return { modelContent: await keepContent(turn, projected as ToolContentPart[]) };
  return {};
}

/** What a row of the journal keeps beside results: the bytes of their attachments that no commit has stored yet. */
export interface AttachedBytes {
  readonly attached?: readonly Uint8Array[];
}

/** Those of these parts. Nothing, where nothing is attached. */
export function bytesBeside({ session }: Turn, parts: Parameters<typeof attachmentsIn>[0]): AttachedBytes {
  const attached: Uint8Array[] = [];
  for (const { source } of attachmentsIn(parts)) {
    const bytes = source.kind === "stored" ? session.blobs.unsaved(source.hash) : undefined;
    if (bytes !== undefined) attached.push(bytes);
  }
  return attached.length === 0 ? NOTHING : { attached };
}

/** The same of results. */
export function bytesBesideOutputs(turn: Turn, outputs: readonly ToolOutput[]): AttachedBytes {
  const parts = outputs.flatMap((output) => (output.status === "success" ? (output.content ?? []) : []));
  return parts.length === 0 ? NOTHING : bytesBeside(turn, storedContent(parts));
}

/** The turn goes on from a row: what was attached then is attached again. */
export function attachAgain(turn: Turn, { attached = [] }: AttachedBytes): void {
  for (const bytes of attached) turn.attached.push(turn.session.blobs.keep(bytes).hash);
}

const NOTHING: AttachedBytes = {};
