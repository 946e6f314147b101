import { HOST_METHODS, type SessionHandle } from "../../plugin/index.js";
import { decodeError, type ErrorData, encodeError } from "../../wire/index.js";
import type { AskedService, AskingCall } from "../plugins/index.js";
import type { Session } from "../state/index.js";

/** What came of a service, as the journal has it. */
interface HostAnswer {
  readonly value?: unknown;
  readonly error?: ErrorData;
}

/**
 * Serves a call that may be made again: a service that changes something, or takes something that is given once, is done
 * once and answered again as it was. With a journal the answer of a turn's call is durable before the plugin has it, so it
 * also outlives the worker.
 */
export function serveOnce(
  session: Session,
  asking: AskingCall,
  asked: AskedService,
  serve: () => Promise<unknown>,
): Promise<unknown> {
  return asking.ask(asked, async (nth) => {
    const turn = session.life.unstoredTurn;
    if (asking.place === undefined || turn === undefined) return serve();
    const { method, args, signal } = asked;
    let thrown: unknown;
    const { value, error } = await turn.journal.once<HostAnswer>({
      key: `host:${asking.name((place) => turn.journal.number(place))}:${nth}`,
      envelope: () => ({ method, args: args as never }),
      run: async () => {
        try {
          const served = await serve();
          return served === undefined ? {} : { value: served };
        } catch (failure) {
          // Of a service that was given up nobody knows what it did. Any other failure is an answer: the call went on from it.
          if (signal?.aborted) throw failure;
          thrown = failure;
          return { error: encodeError(failure) };
        }
      },
      found: async (answer) => {
        await redo(session, asked, answer, serve);
        return answer;
      },
    });
    if (error !== undefined) throw thrown ?? decodeError(error);
    return value;
  });
}

/** What a service changes in the session itself is stored with the turn, so a crash takes it back: it is done again. */
async function redo(
  session: Session,
  { method, args }: AskedService,
  { value }: HostAnswer,
  serve: () => Promise<unknown>,
): Promise<void> {
  if (method === "createSession" && value !== undefined) session.created.add((value as SessionHandle).sessionId);
  else if (args[0] !== session.id) return;
  else if (method === "takeFirstTurnInput") await serve();
  // The generation says whether the change was stored meanwhile, with something else.
  else if (HOST_METHODS[method] === "toolState" && session.tools.generation < Number(value)) await serve();
}
