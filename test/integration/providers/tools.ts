import { type Deferred, deferred, ignore } from "../../../src/async/index.js";

/** One red dot. */
export const IMAGE = {
  type: "image",
  mediaType: "image/png",
  data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==",
} as const;

/** What the tool `screenshot` answers with. */
export const SCREEN = [
  { type: "text", text: "The screen, and its description:" },
  IMAGE,
  { type: "file", mediaType: "application/pdf", name: "screen.pdf", data: "JVBERi0xLjQKJSVFT0YK" },
] as const;

/** What a tool is told: Troupe and `streamText` have different words for it. */
type Stoppable = { readonly signal?: AbortSignal; readonly abortSignal?: AbortSignal };

export interface SharedTool {
  readonly description: string;
  readonly inputSchema: ReturnType<typeof schemaOf>;
  readonly execute: (
    args: object,
    context: Stoppable,
  ) => Promise<string | { readonly [name: string]: string | number }>;
}

const schemaOf = (...names: readonly string[]) => ({
  type: "object" as const,
  properties: Object.fromEntries(names.map((name) => [name, { type: "string" as const }])),
  required: [...names],
  additionalProperties: false,
});

export interface SharedTools {
  readonly tools: Readonly<Record<"broken" | "clock" | "patient" | "screenshot" | "weather", SharedTool>>;
  /** From now on the weather is told only when the clock was read. */
  cross(): void;
  /** From now on a call of `patient` does this, and waits for its signal. */
  whenPatient(act: () => void): void;
}

/** The tools that Troupe and `streamText` are both given: by name, because Troupe sorts them by name. */
export function sharedTools(): SharedTools {
  let clockRead: Deferred<void> | undefined;
  let actOnPatience = ignore;
  const tools = {
    broken: {
      description: "Never works",
      inputSchema: schemaOf(),
      async execute() {
        throw new Error("The line is dead");
      },
    },
    clock: {
      description: "The time in a zone",
      inputSchema: schemaOf("zone"),
      async execute() {
        clockRead?.resolve();
        return "12:00";
      },
    },
    patient: {
      description: "Waits",
      inputSchema: schemaOf(),
      async execute(_args: object, { signal, abortSignal = signal }: Stoppable) {
        actOnPatience();
        return new Promise<string>((_, reject) => {
          abortSignal?.addEventListener("abort", () => reject(abortSignal.reason), { once: true });
        });
      },
    },
    screenshot: {
      description: "What is on the screen",
      inputSchema: schemaOf(),
      async execute() {
        return "Each gives its own form of SCREEN";
      },
    },
    weather: {
      description: "The weather in a city",
      inputSchema: schemaOf("city"),
      async execute() {
        await clockRead?.promise;
        return { sky: "rain", degrees: 4 };
      },
    },
  };
  return {
    tools,
    cross() {
      clockRead = deferred();
    },
    whenPatient(act) {
      actOnPatience = act;
    },
  };
}
