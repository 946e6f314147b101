import type { SessionTools } from "../tools/index.js";
import { encode } from "../wire/index.js";
import { COMPONENT, type StoredComponent } from "./components.js";

/** A session's tools as far as they differ from the registered ones: dirty from the generation on that is not stored. */
export class ToolsComponent implements StoredComponent {
  readonly name = COMPONENT.tools;
  readonly #tools: SessionTools;
  #written: number;
  #encoded: { readonly generation: number; readonly bytes: Uint8Array } | undefined;

  constructor(tools: SessionTools) {
    this.#tools = tools;
    this.#written = tools.generation;
  }

  get dirty(): boolean {
    return this.#tools.generation !== this.#written;
  }

  encode(): Uint8Array {
    const { generation } = this.#tools;
    if (this.#encoded?.generation !== generation)
      this.#encoded = { generation, bytes: encode(this.#tools.exportState()) };
    return this.#encoded.bytes;
  }

  written(bytes: Uint8Array | null): void {
    if (this.#encoded?.bytes !== bytes) return;
    this.#written = this.#encoded.generation;
    this.#encoded = undefined;
  }
}
