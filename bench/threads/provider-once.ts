import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { createTroupe } from "troupe";
import { pause } from "../measuring/neighbours.js";
import { answerWith } from "../measuring/own-process.js";
import { TOKEN, TOKEN_MS } from "../measuring/provider-pace.js";
import { clientOf } from "./provider-model.js";

/** Who reads the streams: Node alone, the provider's client, `ai`, Troupe; and by which fetch. */
export type Reader = "http" | "client" | "ai" | "troupe";
export type Fetch = "global" | "http";

export interface ProviderPlan {
  readonly reader: Reader;
  readonly fetch: Fetch;
  readonly url: string;
  readonly conversations: number;
  /** Within which the conversations begin, how long they then go on unmeasured, and how long they are measured. */
  readonly rampMs: number;
  readonly warmMs: number;
  readonly windowMs: number;
}

export interface ProviderSample {
  /** In the window, by all conversations. */
  readonly tokens: number;
  /** Processor time of the process, all threads, and of its main thread where the system says it (Linux). */
  readonly cpuUs: number;
  readonly mainUs: number | undefined;
  /** From asking to the first token, of each conversation. */
  readonly firstTokenMs: readonly number[];
}

/** One conversation that says so many tokens; `heard` is told the text as it comes. */
type Talk = (tokens: number, heard: (text: string) => void) => Promise<unknown>;

answerWith(await measure(JSON.parse(process.argv[2] ?? "{}") as ProviderPlan));

async function measure(plan: ProviderPlan): Promise<ProviderSample> {
  const { conversations, rampMs, warmMs, windowMs } = plan;
  const { talks, close } = await readers(plan);
  // The compiler sees every path once, and connections are open, before anything is measured.
  await Promise.all(talks.map((talk) => talk(5, () => undefined)));

  let chars = 0;
  const firstTokenMs: number[] = [];
  const tokens = Math.ceil((rampMs + warmMs + windowMs) / TOKEN_MS) + 10;
  const running = talks.map(async (talk, n) => {
    await pause((n * rampMs) / conversations);
    const asked = performance.now();
    let first = true;
    await talk(tokens, ({ length }) => {
      if (first) firstTokenMs.push(performance.now() - asked);
      first = false;
      chars += length;
    });
  });
  await pause(rampMs + warmMs);
  const [cpu, main, before] = [process.cpuUsage(), mainThreadUs(), chars];
  await pause(windowMs);
  const { user, system } = process.cpuUsage(cpu);
  const [mainNow, after] = [mainThreadUs(), chars];
  await Promise.all(running);
  await close();
  return {
    tokens: (after - before) / TOKEN.length,
    cpuUs: user + system,
    mainUs: main === undefined || mainNow === undefined ? undefined : mainNow - main,
    firstTokenMs,
  };
}

async function readers(plan: ProviderPlan): Promise<{ readonly talks: readonly Talk[]; close(): Promise<unknown> }> {
  const { reader, fetch, url, conversations } = plan;
  const each = (talk: Talk) => Array.from({ length: conversations }, () => talk);
  const nothing = async () => undefined;
  switch (reader) {
    case "http": {
      const agent = new Agent({ keepAlive: true });
      const close = async () => agent.destroy();
      return { talks: each((tokens, heard) => readByHttp({ url, agent, tokens, heard })), close };
    }
    case "client": {
      const model = clientOf(url, fetch);
      const talk: Talk = async (maxOutputTokens, heard) => {
        const prompt = [{ role: "user" as const, content: [{ type: "text" as const, text: "Talk." }] }];
        const { stream } = await model.doStream({ prompt, maxOutputTokens });
        for await (const part of stream) if (part.type === "text-delta") heard(part.delta);
      };
      return { talks: each(talk), close: nothing };
    }
    case "ai": {
      const { streamText } = await import("ai");
      const model = clientOf(url, fetch);
      const talk: Talk = async (maxOutputTokens, heard) => {
        for await (const text of streamText({ model, prompt: "Talk.", maxOutputTokens }).textStream) heard(text);
      };
      return { talks: each(talk), close: nothing };
    }
    case "troupe": {
      const model = new URL(`./provider-model.js?fetch=${fetch}&base=${encodeURIComponent(url)}`, import.meta.url);
      const troupe = await createTroupe({ model });
      const sessions = await Promise.all(Array.from({ length: conversations }, (_, n) => troupe.session(`s${n}`)));
      const talks = sessions.map(
        (session): Talk =>
          async (maxOutputTokens, heard) => {
            for await (const activity of session.turn("Talk.", { modelOptions: { maxOutputTokens } }))
              if (activity.type === "text_delta") heard(activity.text);
          },
      );
      return { talks, close: () => troupe.close() };
    }
  }
}

interface Read {
  readonly url: string;
  readonly agent: Agent;
  readonly tokens: number;
  readonly heard: (text: string) => void;
}

/** The least there is to do: Node's own client, lines, `JSON.parse`. */
async function readByHttp({ url, agent, tokens, heard }: Read): Promise<void> {
  const body = JSON.stringify({ model: "tiny", stream: true, max_tokens: tokens, messages: [] });
  const response = await new Promise<AsyncIterable<string>>((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    request(`${url}/chat/completions`, { method: "POST", agent, headers })
      .on("response", (answer) => resolve(answer.setEncoding("utf8")))
      .on("error", reject)
      .end(body);
  });
  let rest = "";
  for await (const piece of response) {
    const events = (rest + piece).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      if (event === "data: [DONE]") continue;
      const { choices } = JSON.parse(event.slice("data: ".length)) as Chunk;
      const { content } = choices[0]?.delta ?? {};
      if (content !== undefined) heard(content);
    }
  }
}

interface Chunk {
  readonly choices: readonly { readonly delta: { readonly content?: string } }[];
}

/** The main thread's id is the process's. */
function mainThreadUs(): number | undefined {
  try {
    const [ns] = readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ");
    return Number(ns) / 1_000;
  } catch {
    return undefined;
  }
}
