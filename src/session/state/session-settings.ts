import { onAbort } from "../../async/index.js";
import {
  addLedgers,
  isZeroUsage,
  type Ledger,
  type LedgerEntry,
  type PromptLayer,
  type SessionBudget,
  type SessionConfig,
  type SpendingReport,
  spentOf,
  TroupeError,
  whySpent,
} from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import { encode } from "../../wire/index.js";
import type { WorkerSettings } from "../calls/index.js";
import { COMPONENT, Component, type ComponentReader, type StoredSession } from "../stored/index.js";
import { betweenTurns, type SessionLife } from "./session-life.js";

/** What of the runtime's settings a session's configuration selects from. */
interface Choice extends Pick<WorkerSettings, "prompt"> {
  readonly models: ReadonlyMap<string, Model>;
}

/** What a session is configured with, and what of the runtime's settings that selects. */
export class SessionSettings {
  readonly component = new Component(COMPONENT.config);
  readonly #choice: Choice;
  #config: SessionConfig;
  #promptLayers: readonly PromptLayer[];

  constructor(choice: Choice, config: SessionConfig) {
    this.#choice = choice;
    this.#config = config;
    this.#promptLayers = layersOf(choice.prompt, config.prompt);
  }

  get config(): SessionConfig {
    return this.#config;
  }

  /** In force at once, and stored with the next write. */
  change(config: SessionConfig): void {
    this.#config = config;
    this.#promptLayers = layersOf(this.#choice.prompt, config.prompt);
    this.component.change(encode(config));
  }

  /** What host and session put into the prompt, the later the stronger. The same list until one of them changes. */
  get promptLayers(): readonly PromptLayer[] {
    return this.#promptLayers;
  }

  /** The model a turn names, or the session's own. */
  modelNamed(name: string = this.#config.model ?? ""): Model {
    const { models } = this.#choice;
    const model = models.get(name);
    if (model !== undefined) return model;
    const known = [...models.keys()].filter((other) => other !== "");
    throw new TroupeError(
      "model_unknown",
      `There is no model ${name}. ${known.length === 0 ? "Give the runtime its models." : `There are: ${known.join(", ")}.`}`,
      { details: { model: name } },
    );
  }
}

/** What an older release did not store is as the runtime's options say. */
export async function storedConfig(
  services: Pick<WorkerSettings, "config">,
  reader: ComponentReader,
): Promise<SessionConfig> {
  return { ...services.config, ...(await reader.value<SessionConfig>(COMPONENT.config)) };
}

function layersOf(host: PromptLayer | undefined, own: PromptLayer | null): readonly PromptLayer[] {
  return [...(host === undefined ? [] : [host]), ...(own === null ? [] : [own])];
}

interface SpendingParts extends Pick<WorkerSettings, "budget" | "prices"> {
  readonly stored: Pick<StoredSession, "ledger" | "usage" | "store">;
  readonly life: SessionLife;
}

/** What a session has spent, its budget, and who waits for it to be raised. */
export class Spending {
  readonly component = new Component(COMPONENT.budget);
  readonly #parts: SpendingParts;
  readonly #waiting = new Set<() => void>();
  #budget: SessionBudget | null;

  constructor(parts: SpendingParts) {
    this.#parts = parts;
    this.#budget = parts.budget;
  }

  get budget(): SessionBudget | null {
    return this.#budget;
  }

  /** Says what the session may spend, once it is stored: a turn that waits for it goes on. */
  async set(budget: SessionBudget | null): Promise<SpendingReport> {
    this.component.change(encode({ budget }));
    await this.#parts.stored.store("budget");
    this.#budget = budget;
    for (const wake of [...this.#waiting]) wake();
    return this.report();
  }

  /** Everything the session has spent, the running turn's calls included. */
  get ledger(): Ledger {
    return addLedgers(this.#parts.stored.ledger, this.#parts.life.unstoredTurn?.state.spent ?? []);
  }

  /** Counts usage that is not of the session's own turns. Written with the running turn, or else at once. */
  async record(entry: LedgerEntry): Promise<void> {
    if (isZeroUsage(entry.usage)) return;
    const { stored, life } = this.#parts;
    const between = betweenTurns(life.now);
    if (between) stored.usage.count(entry);
    else stored.usage.hold(entry);
    life.turn?.tellUsage(entry);
    if (between) await stored.store("usage");
  }

  report(): SpendingReport {
    return { budget: this.#budget, ...this.#spent() };
  }

  /** Why there is nothing left to pay another call with; undefined while there is. */
  whySpent(): string | undefined {
    return this.#budget === null ? undefined : whySpent(this.#budget, this.#spent());
  }

  #spent() {
    return spentOf(this.ledger, this.#parts.prices);
  }

  /** Throws `budget_spent` when there is nothing left. */
  check(): void {
    const why = this.whySpent();
    if (why !== undefined) throw new TroupeError("budget_spent", why);
  }

  /** Resolves when there is something to spend again, or the signal aborts. */
  async untilRaised(signal: AbortSignal): Promise<void> {
    while (this.whySpent() !== undefined && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const wake = () => {
          this.#waiting.delete(wake);
          letGo();
          resolve();
        };
        this.#waiting.add(wake);
        const letGo = onAbort(signal, wake);
      });
    }
  }
}
