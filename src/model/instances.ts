import { type Clock, inTime } from "../async/index.js";
import { asTroupeError, isRecord, TroupeError } from "../kernel/index.js";
import { moduleInvalid } from "../wire/index.js";
import { hideValues, type Model, type ModelContext, type ModelFactory } from "./boundary/index.js";
import { presentableError } from "./calling/index.js";
import { modelLoadTimeout } from "./load-timeout.js";

/** Whose model it is. */
export interface ModelOwner {
  readonly tenant: string | undefined;
  readonly agent: string | undefined;
}

export type Secrets = Readonly<Record<string, string>>;

interface InstancesParts {
  readonly clock: Clock;
  /** How many are kept; of more, those that nobody asked for longest are made anew when they are needed. */
  readonly max: number;
  /** How long making one may take, its secrets included. */
  readonly loadMs: number;
  /** How old the secrets of one may be before it is made anew; null: any age. */
  readonly ttlMs: number | null;
  /** Asks the host; undefined when it gives no secrets. */
  readonly secrets: ((tenant: string | undefined) => Promise<unknown>) | undefined;
}

interface Instance {
  readonly made: Promise<Model>;
  readonly since: number;
  /** Once it is made. */
  model?: Model;
}

/**
 * The models that factories made on this thread: one for each factory, tenant and agent. A provider that refuses a
 * model's key has it made anew, with the secrets the host gives then.
 *
 * @example
 * const model = await instances.of(factory, { tenant: "acme", agent: "support@3" });
 */
export class ModelInstances {
  readonly #parts: InstancesParts;
  /** In the order they were last asked for. */
  readonly #kept = new Map<string, Instance>();
  readonly #numbers = new WeakMap<ModelFactory, number>();
  #lastNumber = 0;

  constructor(parts: InstancesParts) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** The owner's model: at once when it is there. */
  of(loaded: Model | ModelFactory, owner: ModelOwner): Model | Promise<Model> {
    if (!isFactory(loaded)) return loaded;
    const key = JSON.stringify([this.#numberOf(loaded), owner.tenant, owner.agent]);
    const known = this.#kept.get(key);
    this.#kept.delete(key);
    const instance = known === undefined || this.#isOld(known) ? this.#make(loaded, owner, key) : known;
    this.#kept.set(key, instance);
    this.#dropOldest();
    return instance.model ?? instance.made;
  }

  /** A provider did not accept what this model came with: whoever needs one next gets another. */
  refused(model: Model): void {
    for (const [key, instance] of this.#kept) if (instance.model === model) this.#kept.delete(key);
  }

  #isOld({ since, model }: Instance): boolean {
    const { ttlMs, clock } = this.#parts;
    return ttlMs !== null && model !== undefined && clock.now() - since >= ttlMs;
  }

  #dropOldest(): void {
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > this.#parts.max && oldest !== undefined) this.#kept.delete(oldest);
  }

  #make(factory: ModelFactory, owner: ModelOwner, key: string): Instance {
    const { clock } = this.#parts;
    const instance: Instance = { since: clock.now(), made: this.#madeInTime(factory, owner) };
    instance.made.then(
      (model) => {
        instance.model = model;
      },
      () => {
        if (this.#kept.get(key) === instance) this.#kept.delete(key);
      },
    );
    return instance;
  }

  async #madeInTime(factory: ModelFactory, owner: ModelOwner): Promise<Model> {
    const { clock, loadMs } = this.#parts;
    try {
      return await inTime(clock, loadMs, this.#made(factory, owner), () => modelLoadTimeout(factory.url, loadMs));
    } catch (error) {
      // What the module threw may quote what it was given.
      throw presentableError(asTroupeError(error, "model_failed"));
    }
  }

  async #made(factory: ModelFactory, { tenant, agent }: ModelOwner): Promise<Model> {
    const { secrets: ask } = this.#parts;
    const secrets = ask === undefined ? NO_SECRETS : checkSecrets(await ask(tenant), tenant);
    const values = Object.values(secrets);
    hideValues(values);
    const model = await factory.make({ tenant, agent, secrets, options: factory.options } satisfies ModelContext);
    checkNames(factory, model, values);
    return model;
  }

  #numberOf(factory: ModelFactory): number {
    const number = this.#numbers.get(factory) ?? ++this.#lastNumber;
    this.#numbers.set(factory, number);
    return number;
  }
}

function isFactory(loaded: Model | ModelFactory): loaded is ModelFactory {
  return !("stream" in loaded);
}

const NO_SECRETS: Secrets = Object.freeze({});

/** Nothing of what is wrong is quoted: it may be a secret. */
function checkSecrets(given: unknown, tenant: string | undefined): Secrets {
  if (given === undefined || given === null) return NO_SECRETS;
  if (isRecord(given) && Object.values(given).every((value) => typeof value === "string")) return given as Secrets;
  throw secretsFailed(tenant, "secrets must return an object of texts");
}

/** Why a tenant's model has no secrets. `why` quotes none of them. */
export function secretsFailed(tenant: string | undefined, why: string): TroupeError {
  const whose = tenant === undefined ? "of sessions without a tenant" : `of tenant ${tenant}`;
  return new TroupeError("secrets_failed", `The secrets ${whose} could not be had: ${why}.`, { retryable: true });
}

/** Names are stored and told with every call. */
function checkNames({ url }: ModelFactory, { id, route = id }: Model, secrets: readonly string[]): void {
  if (!secrets.some((secret) => secret !== "" && (id.includes(secret) || route.includes(secret)))) return;
  throw moduleInvalid("model", url, "the id or the address of its model holds a secret");
}
