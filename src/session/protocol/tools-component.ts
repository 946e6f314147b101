import type { ToolState } from "../../kernel/index.js";
import type { SessionTools } from "../../tools/index.js";
import { decode, encode } from "../../wire/index.js";
import { COMPONENT, type StoredComponent } from "../stored/index.js";

/** A session's tools as far as they differ from the registered ones: dirty from the generation on that is not stored. */
export class ToolsComponent implements StoredComponent {
  readonly name = COMPONENT.tools;
  readonly #tools: SessionTools;
  #written: number;

  constructor(tools: SessionTools) {
    this.#tools = tools;
    this.#written = tools.generation;
  }

  get dirty(): boolean {
    return this.#tools.generation !== this.#written;
  }

  encode(): Uint8Array {
    return encode(this.#tools.exportState());
  }

  /** The tools may have changed since these bytes were encoded. */
  written(bytes: Uint8Array): void {
    this.#written = decode<ToolState>(bytes).generation;
  }
}
