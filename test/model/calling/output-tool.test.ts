import { describe, expect, it } from "vitest";
import { type JsonObject, type ModelEvent, type ModelRequest, NO_USAGE } from "../../../src/kernel/index.js";
import { streamInForm } from "../../../src/model/calling/output-tool.js";

const OBJECT: JsonObject = { type: "object", description: "The weather.", properties: { celsius: { type: "number" } } };
const FINISH: ModelEvent = { type: "finish", reason: "tool_calls", usage: NO_USAGE };
const call = (toolName: string, argsText: string, callId = toolName): ModelEvent => ({
  type: "tool_call",
  callId,
  toolName,
  argsText,
});
const delta = (text: string): ModelEvent => ({ type: "tool_input_delta", callId: "c", toolName: "final_answer", text });

/** What a model is asked, and what comes of its answer. */
async function asked(given: Partial<ModelRequest>, events: readonly ModelEvent[], answersInForm?: () => boolean) {
  let seen: ModelRequest | undefined;
  const request = { sessionId: "s", turnId: "t1", step: 0, system: "", history: [], turn: [], tools: [], ...given };
  const model = {
    id: "m",
    ...(answersInForm && { answersInForm }),
    async *stream(asks: ModelRequest) {
      seen = asks;
      yield* events;
    },
  };
  const said: ModelEvent[] = [];
  for await (const event of streamInForm(model, request, new AbortController().signal)) said.push(event);
  return { seen, said, request };
}

describe("a model that is asked for an answer in a form", () => {
  it("is asked as it is when it has a mode for it, or when no form is asked for", async () => {
    const own = await asked({ output: { schema: OBJECT } }, [FINISH], () => true);
    expect(own.seen).toBe(own.request);
    const none = await asked({}, [FINISH]);
    expect(none.seen).toBe(none.request);
    expect(none.said).toEqual([FINISH]);
  });

  it("is otherwise given a tool to end with, and has to call one", async () => {
    const { seen } = await asked({ output: { schema: OBJECT } }, [FINISH]);
    expect(seen?.tools).toEqual([
      {
        name: "final_answer",
        description: "Gives the final answer. Call it once, alone, when nothing else is left to do. The weather.",
        inputSchema: OBJECT,
      },
    ]);
    expect(seen?.options).toEqual({ toolChoice: "required" });
    expect(seen && "output" in seen).toBe(false);
  });

  it("keeps what was said of its tools: another tool of that name, and a choice of tools", async () => {
    const other = { name: "final_answer", description: "Another.", inputSchema: OBJECT };
    const { seen } = await asked({ output: { schema: OBJECT }, tools: [other], options: { toolChoice: "auto" } }, [
      FINISH,
    ]);
    expect(seen?.tools.map(({ name }) => name)).toEqual(["final_answer", "final_answer_2"]);
    expect(seen?.options).toEqual({ toolChoice: "auto" });
  });

  it("answers with the tool's arguments as text, as they are written", async () => {
    const events = [delta('{"cel'), delta('sius":4'), call("final_answer", '{"celsius":4}', "c"), FINISH];
    const { said } = await asked({ output: { schema: OBJECT } }, events);
    expect(said).toEqual([
      { type: "text_delta", blockId: "final_answer_1", text: '{"cel' },
      { type: "text_delta", blockId: "final_answer_1", text: 'sius":4' },
      { type: "text_delta", blockId: "final_answer_1", text: "}" },
      { type: "text_end", blockId: "final_answer_1" },
      { ...FINISH, reason: "stop" },
    ]);
  });

  it("answers with a value that is no object by a field of its own, and with what cannot be read as it was written", async () => {
    const schema: JsonObject = { type: "array", items: { type: "number" } };
    const wrapped = await asked({ output: { schema } }, [call("final_answer", '{"value":[1,2]}'), FINISH]);
    expect(wrapped.seen?.tools[0]?.inputSchema).toEqual({
      type: "object",
      properties: { value: schema },
      required: ["value"],
    });
    expect(wrapped.said[0]).toMatchObject({ type: "text_delta", text: "[1,2]" });
    const broken = await asked({ output: { schema } }, [call("final_answer", '{"value":[1'), FINISH]);
    expect(broken.said[0]).toMatchObject({ type: "text_delta", text: '{"value":[1' });
  });

  it("goes on when it calls other tools beside it", async () => {
    const { said } = await asked({ output: { schema: OBJECT } }, [
      call("look", "{}"),
      call("final_answer", "{}"),
      FINISH,
    ]);
    expect(said.at(-1)).toEqual(FINISH);
    expect(said.filter(({ type }) => type === "tool_call")).toHaveLength(1);
  });
});
