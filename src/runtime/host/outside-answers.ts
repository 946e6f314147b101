import type { OutsideAsk } from "../../session/index.js";
import type { Outside } from "../outside/index.js";
import { TaskServices } from "../tasks/index.js";
import { TriggerServices } from "../triggers/index.js";

interface OutsideServices {
  readonly tasks: TaskServices;
  readonly triggers: TriggerServices;
  readonly agents: { readonly answer: (ask: OutsideAsk) => Promise<unknown> };
  readonly outside: Outside;
}

/** Answers what plugins ask about what their session has outside of its worker. */
export function outsideAnswers(services: OutsideServices): (ask: OutsideAsk) => Promise<unknown> {
  const { tasks, triggers, agents, outside } = services;
  return (ask) => {
    if (ask.method === "startTurnTask") return agents.answer(ask);
    if (TaskServices.has(ask.method)) return tasks.answer(ask);
    return TriggerServices.has(ask.method) ? triggers.answer(ask) : outside.answer(ask);
  };
}
