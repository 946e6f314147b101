import { type PromptLayer, type SessionConfig, TroupeError } from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import { encode } from "../../wire/index.js";
import { COMPONENT, Component, type ComponentReader } from "../stored/index.js";
import type { SessionServices } from "./session-parts.js";

/** What a session is configured with, and what of the runtime's settings that selects. */
export class SessionSettings {
  readonly component = new Component(COMPONENT.config);
  readonly #services: Pick<SessionServices, "models" | "prompt">;
  #config: SessionConfig;
  #promptLayers: readonly PromptLayer[];

  constructor(services: Pick<SessionServices, "models" | "prompt">, config: SessionConfig) {
    this.#services = services;
    this.#config = config;
    this.#promptLayers = layersOf(services.prompt, config.prompt);
  }

  get config(): SessionConfig {
    return this.#config;
  }

  /** In force at once, and stored with the next write. */
  change(config: SessionConfig): void {
    this.#config = config;
    this.#promptLayers = layersOf(this.#services.prompt, config.prompt);
    this.component.change(encode(config));
  }

  /** What host and session put into the prompt, the later the stronger. The same list until one of them changes. */
  get promptLayers(): readonly PromptLayer[] {
    return this.#promptLayers;
  }

  /** The model a turn names, or the session's own. */
  modelNamed(name: string = this.#config.model ?? ""): Model {
    const { models } = this.#services;
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
  services: Pick<SessionServices, "config">,
  reader: ComponentReader,
): Promise<SessionConfig> {
  return { ...services.config, ...(await reader.value<SessionConfig>(COMPONENT.config)) };
}

function layersOf(host: PromptLayer | undefined, own: PromptLayer | null): readonly PromptLayer[] {
  return [...(host === undefined ? [] : [host]), ...(own === null ? [] : [own])];
}
