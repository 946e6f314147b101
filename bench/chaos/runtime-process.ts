import { createTroupe, type TroupeEvent } from "troupe";
import { codeOf } from "../measuring/neighbours.js";
import { processOptionsOf } from "./options.js";
import type { FromRuntime, ToRuntime } from "./runtime-messages.js";

// The process that is killed: a runtime over a store, which does what it is asked by whoever started it.
const [path = "", sessions = "0"] = process.argv.slice(2);
/** How long it may take to end by itself. */
const END_MS = 10_000;
const say = (said: FromRuntime) => void process.send?.(said);
const onEvent = ({ type, session }: TroupeEvent) => {
  if (type === "turn_resumed" && session !== undefined) say({ type: "resumed", session });
};

const troupe = await createTroupe({ ...processOptionsOf(path, Number(sessions)), onEvent });
const { output } = await (await troupe.session("has processes")).command("bench.runs.start");

async function answer({ id, session, name, model }: Extract<ToRuntime, { type: "ask" }>): Promise<void> {
  try {
    const turn = (await troupe.session(session)).turn(name, { key: name, ...(model !== undefined && { model }) });
    if (model === "holding")
      for await (const { type } of turn) if (type === "tool_call_started") say({ type: "tool", id });
    const { outcome } = await turn;
    if (outcome.type === "finished") say({ type: "finished", id, text: outcome.text });
    else say({ type: "refused", id, code: outcome.type === "stopped" ? outcome.code : outcome.type });
  } catch (error) {
    say({ type: "refused", id, code: codeOf(error) });
  }
}

process.on("message", (message: ToRuntime) => {
  if (message.type === "ask") void answer(message);
  // What is killed may be gone already.
  else if (message.type === "kill") troupe.kill(message.target).catch(() => undefined);
  else void troupe.close().then(() => process.disconnect());
});
// Whoever asks is gone: nobody else ends this process.
process.once("disconnect", () => setTimeout(() => process.exit(1), END_MS).unref());
say({ type: "ready", pid: Number(output) });
