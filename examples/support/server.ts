import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Session, Troupe } from "troupe";
import { begin, eventsOf, pageOf } from "./chats.js";
import { answer, bodyOf, Refused, refuse, sendEvents, textIn } from "./http.js";

const NAME = /^[a-z0-9-]{1,64}$/;

/** A request that was understood: whose it is, what for, and what its path names. */
interface Asked {
  readonly troupe: Troupe;
  readonly tenant: string;
  readonly name: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

type Route = (asked: Asked) => Promise<void> | void;

/** `:name` stands for the one part of a path that names something. */
const ROUTES: Readonly<Record<string, Route>> = {
  "GET /chats": listChats,
  "GET /chats/:name": showChat,
  "POST /chats/:name/messages": ask,
  "GET /chats/:name/events": watch,
  "POST /chats/:name/stop": stop,
  "GET /approvals": listApprovals,
  "POST /approvals/:name": decide,
  "DELETE /limit": liftLimit,
};

export function createSupportServer(troupe: Troupe): Server {
  return createServer(async (request, response) => {
    try {
      const [, first = "", name = "", last] = new URL(request.url ?? "/", "http://localhost").pathname.split("/");
      const path = [first, ...(name === "" ? [] : [":name"]), ...(last === undefined ? [] : [last])].join("/");
      const route = ROUTES[`${request.method} /${path}`];
      if (route === undefined) throw new Refused(404, "not_found", "There is nothing here.");
      // Stands for a login: whoever is in front of this server says whose request it is.
      const tenant = String(request.headers["x-tenant"] ?? "");
      if (!NAME.test(tenant)) throw new Refused(401, "no_tenant", "The header x-tenant must name a tenant.");
      await route({ troupe, tenant, name: decodeURIComponent(name), request, response });
    } catch (error) {
      refuse(response, error);
    }
  });
}

/** A tenant's chats have names of its own, and nobody else opens them. */
function chat({ troupe, tenant, name }: Asked): Promise<Session> {
  if (!NAME.test(name)) throw new Refused(400, "no_chat", "A chat's name has a-z, 0-9 and -, up to 64.");
  return troupe.session(`${tenant}/${name}`, { tenant });
}

function nameOf(sessionId: string, tenant: string): string {
  return sessionId.slice(tenant.length + 1);
}

async function listChats({ troupe, tenant, response }: Asked): Promise<void> {
  const { sessions } = await troupe.listSessions({ tenant, order: "changed" });
  const chats = sessions.map(({ id, state, turns }) => ({ chat: nameOf(id, tenant), state, turns }));
  answer(response, 200, { chats });
}

async function showChat(asked: Asked): Promise<void> {
  answer(asked.response, 200, await pageOf(await chat(asked)));
}

async function ask(asked: Asked): Promise<void> {
  const body = await bodyOf(asked.request);
  const text = textIn(body, "text");
  if (text === undefined) throw new Refused(400, "no_text", '"text" is what is asked.');
  // A page that got no answer asks again with the same key, and is given the same turn.
  const key = textIn(body, "key");
  const session = await chat(asked);
  answer(asked.response, 202, { turn: await begin(session.turn(text, { ...(key !== undefined && { key }) })) });
}

async function watch(asked: Asked): Promise<void> {
  const session = await chat(asked);
  const left = new AbortController();
  asked.response.once("close", () => left.abort());
  const behind = asked.request.headers["last-event-id"];
  const events = await eventsOf(session, { behind: behind?.toString(), signal: left.signal });
  await sendEvents(asked.response, events);
}

async function stop(asked: Asked): Promise<void> {
  const session = await chat(asked);
  answer(asked.response, 200, { stopped: await session.cancel("The customer pressed stop.") });
}

async function listApprovals({ troupe, tenant, response }: Asked): Promise<void> {
  const { calls } = await troupe.pending({ tenant });
  const approvals = calls.map(({ key, sessionId, toolName, args, announcement, since }) => {
    return { key, chat: nameOf(sessionId, tenant), tool: toolName, args, reason: announcement.reason, since };
  });
  answer(response, 200, { approvals });
}

async function decide({ troupe, tenant, name: key, request, response }: Asked): Promise<void> {
  const body = await bodyOf(request);
  if (typeof body.approve !== "boolean") throw new Refused(400, "no_verdict", '"approve" must be true or false.');
  // Named with its chat, a key reaches no call of another tenant, wherever it came from.
  const sessionId = `${tenant}/${textIn(body, "chat")}`;
  const outcome = body.approve
    ? await troupe.approve(key, { sessionId })
    : await troupe.deny(key, { sessionId, reason: textIn(body, "reason") ?? "A person said no." });
  answer(response, 200, { outcome });
}

async function liftLimit({ troupe, tenant, response }: Asked): Promise<void> {
  answer(response, 200, { lifted: await troupe.shared.delete("support.tenant-limit", tenant) });
}
