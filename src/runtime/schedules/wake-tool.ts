import type { Clock } from "../../async/index.js";
import { fingerprint } from "../../kernel/index.js";
import { type ToolContext, toolError } from "../../plugin/index.js";
import type { WakeArgs } from "../options/index.js";
import type { Schedules } from "./schedules.js";

/** How often one session may be about to be woken. */
const MAX_WAITING = 32;

/**
 * What `wake_me` does: a schedule that runs once and is gone. The same call, made again after a crash, is the same
 * schedule.
 */
export async function wakeMe(
  schedules: Schedules,
  clock: Clock,
  args: WakeArgs,
  { sessionId, turnId, callId }: Pick<ToolContext, "sessionId" | "turnId" | "callId">,
): Promise<{ readonly wakes_at: string }> {
  if ((args.in_seconds === undefined) === (args.at === undefined))
    throw toolError("Say when: either in_seconds or at.");
  const prefix = `wake:${fingerprint(sessionId).toString(36)}:`;
  const key = `${prefix}${fingerprint(JSON.stringify([turnId, callId])).toString(36)}`;
  // Of calls in one step each counts those before it.
  return schedules.alone(prefix, () => wakeBy(schedules, clock, args, { sessionId, prefix, key }));
}

async function wakeBy(
  schedules: Schedules,
  clock: Clock,
  { message, in_seconds: seconds, at: moment }: WakeArgs,
  { sessionId, prefix, key }: { readonly sessionId: string; readonly prefix: string; readonly key: string },
): Promise<{ readonly wakes_at: string }> {
  const { schedules: waiting } = await schedules.list({ prefix, limit: MAX_WAITING });
  const known = waiting.find((each) => each.key === key)?.next;
  if (known != null) return { wakes_at: new Date(known).toISOString() };
  if (waiting.length === MAX_WAITING)
    throw toolError(`You are to be woken ${MAX_WAITING} times already. Wait for one of them.`);
  const at = seconds === undefined ? (moment as string) : clock.wallNow() + seconds * 1_000;
  const input = `You asked to be woken with this message: ${message}`;
  const { next } = await schedules.putTransient(key, { session: sessionId, at, input, overlap: "queue" }).catch(
    // Its words are those of the argument: `at` is a Date, … not 2030-01-01T09:00.
    (error: unknown) => {
      throw toolError(error instanceof Error ? error.message : String(error), { code: "invalid_tool_args" });
    },
  );
  return { wakes_at: new Date(next as number).toISOString() };
}
