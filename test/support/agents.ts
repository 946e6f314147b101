import type { Session, ToolOutput, TroupeOptions, TurnResult } from "troupe";
import { type SubagentsOptions, subagents } from "troupe/subagents";
import { told } from "./asking.js";
import { fixture } from "./runtime.js";

/** A runtime with agents, and a model that does as it is told. */
export const withAgents = (options: SubagentsOptions = {}, more: TroupeOptions = {}): TroupeOptions => ({
  sessionWorkers: 2,
  model: fixture("models/told.mjs"),
  plugins: [{ module: subagents, options: options as never }],
  ...more,
});

export const spawns = (args: object) => ({ call: "spawn_agent", args: { wait: true, ...args } });
export const asks = (agent: string, message: string, more: object = {}) => ({
  call: "ask_agent",
  args: { agent, message, ...more },
});
export const closes = (agent: string) => ({ call: "close_agent", args: { agent } });

/** What each tool call of a turn came to: its value, or the code of its failure. */
export const cameTo = ({ toolCalls }: Pick<TurnResult, "toolCalls">) => toolCalls.map(({ output }) => read(output));
const read = (output: ToolOutput) =>
  output.status === "success" ? output.value : output.status === "failure" ? output.failure.code : output.status;

/** A turn that does these, and what they came to. */
export const turnOf = async (session: Session, ...steps: readonly object[]) =>
  cameTo(await session.turn(told(...steps, { say: "done" })));

/** What a session was asked and told, as texts. */
export const heardBy = async (session: Session) =>
  (await session.messages())
    .filter(({ role }) => role === "user")
    .map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
