import { type Clock, onAbort } from "../../async/index.js";
import {
  type Agent,
  addLedgers,
  budgetSpent,
  type CallLayers,
  type CallSettings,
  callSettings,
  configOf,
  configuredOver,
  isZeroUsage,
  knownInstead,
  type Ledger,
  type LedgerEntry,
  type PromptLayer,
  remainingBudget,
  type SessionBudget,
  type SessionConfig,
  type SpendingReport,
  spentOf,
  TroupeError,
  usageReport,
  whySpent,
} from "../../kernel/index.js";
import type { Model, ModelFactory, ModelInstances } from "../../model/index.js";
import { encode } from "../../wire/index.js";
import { UNSAYABLE, type WorkerSettings } from "../calls/index.js";
import { COMPONENT, Component, type ComponentReader, type StoredSession } from "../stored/index.js";
import type { AgentInForce } from "./agents.js";
import { ChildCalls } from "./child-calls.js";
import { betweenTurns, type SessionLife } from "./session-life.js";
import type { TenantSpending } from "./tenant-spending.js";

/** What of the runtime's settings a session's configuration selects from. */
interface Choice extends Pick<WorkerSettings, "prompt" | "calling" | "config"> {
  readonly models: ReadonlyMap<string, Model | ModelFactory>;
  readonly instances: Pick<ModelInstances, "of">;
}

/** Whose settings they are. */
interface SettingsOwner {
  readonly tenant: string | undefined;
  readonly agent: AgentInForce;
}

/** Who answers a turn. */
export interface TurnModels {
  readonly model: Model;
  /** Who takes over when it gives no answer, in this order. */
  readonly fallbacks: readonly Model[];
}

const NO_FALLBACKS: readonly Model[] = [];

/** What a session is configured with, and what of the runtime's settings that selects. */
export class SessionSettings {
  readonly component = new Component(COMPONENT.config);
  readonly #choice: Choice;
  readonly #owner: SettingsOwner;
  #config: SessionConfig;
  #promptLayers: readonly PromptLayer[];
  #callLayers: CallLayers;
  /** What the layers come to. */
  #calling: CallSettings;

  constructor(choice: Choice, config: SessionConfig, owner: SettingsOwner) {
    this.#choice = choice;
    this.#config = config;
    this.#owner = owner;
    this.#promptLayers = this.#layers(config);
    this.#callLayers = this.#calls(config);
    this.#calling = callSettings(this.#callLayers);
  }

  get config(): SessionConfig {
    return this.#config;
  }

  /** In force at once, and stored with the next write. */
  change(config: SessionConfig): void {
    this.#config = config;
    this.#promptLayers = this.#layers(config);
    this.#callLayers = this.#calls(config);
    this.#calling = callSettings(this.#callLayers);
    this.component.change(encode(this.#stored(config)));
  }

  /** What is stored: with an agent only what somebody has set, so that the rest goes on being as the agent says. */
  #stored(config: SessionConfig): Partial<SessionConfig> {
    const { name, agent } = this.#owner.agent;
    return name === undefined ? config : configuredOver(configOf(this.#choice.config, agent), config);
  }

  #layers({ prompt }: SessionConfig): readonly PromptLayer[] {
    return layersOf(this.#choice.prompt, this.#owner.agent.agent?.prompt, prompt ?? undefined);
  }

  #calls({ modelOptions }: SessionConfig): CallLayers {
    const agent = this.#owner.agent.agent?.calling;
    return {
      runtime: this.#choice.calling,
      ...(agent !== undefined && { agent }),
      ...(modelOptions !== null && { session: { modelOptions } }),
    };
  }

  /** What host, agent and session put into the prompt, the later the stronger. The same list until one of them changes. */
  get promptLayers(): readonly PromptLayer[] {
    return this.#promptLayers;
  }

  /** What runtime, agent and session say of how models are called. The same object until one of them changes. */
  get callLayers(): CallLayers {
    return this.#callLayers;
  }

  /** What these layers come to; the session's own are added up when one of them changes, and not for every turn. */
  calling(layers: CallLayers): CallSettings {
    return layers === this.#callLayers ? this.#calling : callSettings(layers);
  }

  /** Who answers a turn that names these, by these layers; throws `model_unknown` for a name nobody has. At once unless a model is yet to be made. */
  modelsFor(
    { model: name, calling }: { readonly model?: string; readonly calling?: CallSettings } = {},
    layers = this.#callLayers,
  ): TurnModels | Promise<TurnModels> {
    const model = this.#modelNamed(this.#nameOf(name));
    const { fallbackModels = [] } = this.calling(calling === undefined ? layers : { ...layers, turn: calling });
    if (fallbackModels.length === 0 && !(model instanceof Promise)) return { model, fallbacks: NO_FALLBACKS };
    const fallbacks = fallbackModels.map((fallback) => this.#modelNamed(fallback));
    if (model instanceof Promise || fallbacks.some((each) => each instanceof Promise)) return made(model, fallbacks);
    return turnModels(model, fallbacks as readonly Model[]);
  }

  /** Throws `model_unknown` unless there is a model of this name. */
  checkModel(name: string): void {
    this.#loaded(name);
  }

  #nameOf(asked: string | undefined): string {
    return asked ?? this.#config.model ?? this.#owner.agent.agent?.model ?? "";
  }

  /** What the model of a turn that asks for this one is called, in every process alike; undefined for one of an agent's own. */
  modelName(asked: string | undefined): string | undefined {
    const name = this.#nameOf(asked);
    return name.startsWith(UNSAYABLE) ? undefined : name;
  }

  /** The tenant's and agent's own, where the module makes them. */
  #modelNamed(name: string): Model | Promise<Model> {
    const { tenant, agent } = this.#owner;
    return this.#choice.instances.of(this.#loaded(name), { tenant, agent: agent.name });
  }

  #loaded(name: string): Model | ModelFactory {
    const { models } = this.#choice;
    const model = models.get(name);
    if (model !== undefined) return model;
    // Models of agents have no name a person could say.
    const known = [...models.keys()].filter((other) => other !== "" && !other.startsWith(UNSAYABLE));
    throw new TroupeError(
      "model_unknown",
      `There is no model ${name}. ${known.length === 0 ? "Give the runtime its models." : knownInstead(name, known)}`,
      { details: { model: name } },
    );
  }
}

/** What nobody has set, or an older release did not store, is as the agent says, and else the runtime's options. */
export async function storedConfig(
  services: Pick<WorkerSettings, "config">,
  reader: ComponentReader,
  agent?: Agent,
): Promise<SessionConfig> {
  return { ...configOf(services.config, agent), ...(await reader.value<SessionConfig>(COMPONENT.config)) };
}

function layersOf(...layers: readonly (PromptLayer | undefined)[]): readonly PromptLayer[] {
  return layers.filter((layer) => layer !== undefined);
}

/** A model that takes over from itself would be asked twice. */
function turnModels(model: Model, fallbacks: readonly Model[]): TurnModels {
  return { model, fallbacks: fallbacks.filter((fallback) => fallback !== model) };
}

async function made(
  model: Model | Promise<Model>,
  fallbacks: readonly (Model | Promise<Model>)[],
): Promise<TurnModels> {
  const [first, ...others] = await Promise.all([model, ...fallbacks]);
  return turnModels(first, others);
}

interface SpendingParts extends Pick<WorkerSettings, "budget" | "prices"> {
  readonly clock: Clock;
  readonly stored: Pick<StoredSession, "ledger" | "usage" | "store">;
  readonly life: SessionLife;
  readonly tenant: TenantSpending | undefined;
}

/** What a session has spent, its budget, and who waits for it to be raised. */
export class Spending {
  readonly component = new Component(COMPONENT.budget);
  readonly #parts: SpendingParts;
  readonly #waiting = new Set<() => void>();
  #children: ChildCalls | undefined;
  #budget: SessionBudget | null;

  constructor(parts: SpendingParts) {
    this.#parts = parts;
    this.#budget = parts.budget;
  }

  /** What its children are about to spend for it. Made when somebody first asks for it: most sessions have no budget. */
  get children(): ChildCalls {
    this.#children ??= new ChildCalls({ ...this.#parts, budget: () => this.#budget, spent: () => this.#spent() });
    return this.#children;
  }

  /** See {@link ChildCalls.crowd}. */
  crowd(): Promise<unknown> | undefined {
    return this.#children?.crowd();
  }

  /** See {@link ChildCalls.drop}. */
  dropChildren(): void {
    this.#children?.drop();
  }

  /** Do other sessions pay for the turn that runs, so that they are to be asked before its model calls? */
  get isLimited(): boolean {
    return this.#parts.life.turn?.isLimited === true;
  }

  /** What its tenant may spend; undefined where tenants have no budgets, or it has no tenant. */
  get tenant(): TenantSpending | undefined {
    return this.#parts.tenant;
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
    this.#children?.changed();
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
    return { budget: this.#budget, ...this.#spent(), cache: usageReport(this.ledger).cache };
  }

  /** Why there is nothing left to pay another call with; undefined while there is. */
  whySpent(): string | undefined {
    return this.#budget === null ? undefined : whySpent(this.#budget, this.#spent());
  }

  /** What another session may spend for this one: what is left. Undefined without a budget. */
  remaining(): SessionBudget | undefined {
    return this.#budget === null ? undefined : remainingBudget(this.#budget, this.#spent());
  }

  #spent() {
    return spentOf(this.ledger, this.#parts.prices);
  }

  /** Throws `budget_spent` when there is nothing left. */
  check(): void {
    const why = this.whySpent();
    if (why !== undefined) throw budgetSpent(why);
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
