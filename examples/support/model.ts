import type { ModelContext } from "troupe";
import type { Model, ModelEvent, ModelRequest } from "troupe/model";

/** What it wants to do next: say something, piece by piece, or call a tool. */
type Step =
  | { readonly say: readonly string[]; readonly paced?: true }
  | { readonly call: string; readonly args: object };

/**
 * A stand-in for a language model, so that the example runs without a key. It looks for a word in what the customer wrote
 * and does always the same; it signs with the name that its instructions give it.
 */
export default ({ options }: ModelContext<{ readonly paceMs: number }>): Model => ({
  id: "stand-in",
  async *stream(request, signal): AsyncGenerator<ModelEvent> {
    const step = stepFor(request);
    if ("call" in step) {
      yield { type: "text_delta", blockId: "answer", text: "One moment, please." };
      const argsText = JSON.stringify(step.args);
      yield { type: "tool_call", callId: `call_${request.step}`, toolName: step.call, argsText };
    } else {
      for (const [index, text] of step.say.entries()) {
        if (index > 0 && step.paced) await pause(options.paceMs, signal);
        yield { type: "text_delta", blockId: "answer", text };
      }
    }
    const usage = { inputTokens: 100, outputTokens: 20, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 };
    yield { type: "finish", reason: "call" in step ? "tool_calls" : "stop", usage };
  },
});

function stepFor({ turn, step, system }: ModelRequest): Step {
  const name = /You are (\w+)/.exec(system)?.[1] ?? "nobody";
  const question = textOf(turn.find(({ role }) => role === "user"));
  const [, order = "7"] = /order (\w+)/i.exec(question) ?? [];
  const [, amount] = /refund (\d+)/i.exec(question) ?? [];
  if (step === 0 && amount !== undefined) return { call: "refund", args: { order, amount: Number(amount) } };
  if (step === 0 && /order/i.test(question)) return { call: "order", args: { order } };
  if (step > 0) return { say: inPieces(resultOf(turn)) };
  if (/warranty/i.test(question)) {
    return { say: ["The warranty ", "lasts two years ", `from the day it came. – ${name}`], paced: true };
  }
  return { say: inPieces(`You wrote: ${question} – ${name}`) };
}

/** As providers do it: a text is cut anywhere, also in the middle of a number. */
function inPieces(text: string): string[] {
  return text.match(/.{1,7}/gsu) ?? [];
}

type Message = ModelRequest["turn"][number];

function textOf(message: Message | undefined): string {
  return (message?.parts ?? []).map((part) => (part.type === "text" ? part.text : "")).join("");
}

function resultOf(turn: readonly Message[]): string {
  const results = turn.flatMap(({ parts }) => parts.map((part) => (part.type === "tool_result" ? part.text : "")));
  return results.join("");
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
