import { describe, expectTypeOf, it } from "vitest";
import { z } from "zod";
import { abortTurn, definePlugin, defineTool, deny, replaceInput } from "../../../src/plugin/index.js";

/** These tests are read by the compiler too: a line that should not compile and does is an error of `npm run check`. */
const base = { id: "acme.test", version: "1.0.0" } as const;
const shared = {
  key: ({ tenant }: { readonly tenant: string | undefined }) => tenant ?? "",
  state: () => ({ asked: 0 }),
};

describe("the types of shared state", () => {
  it("are those of its first state, in hooks and tools", () => {
    definePlugin({
      ...base,
      shared,
      hooks: {
        async beforeTurn({ shared }) {
          expectTypeOf(await shared.read()).toEqualTypeOf<{ asked: number }>();
          const { asked } = await shared.update((state) => {
            expectTypeOf(state).toEqualTypeOf<{ asked: number }>();
            state.asked++;
          });
          await shared.update(({ asked }) => ({ asked: asked + 1 }));
          // @ts-expect-error another state
          await shared.update(() => ({ count: 1 }));
          // @ts-expect-error it may run again, and waits for nothing
          await shared.update(async (state) => state);
          if (asked > 3) return abortTurn("limit", "No more.");
        },
      },
      tools: {
        count: {
          description: "Counts.",
          inputSchema: z.object({}),
          execute: async (_args, { shared }) => {
            expectTypeOf(await shared.read()).toEqualTypeOf<{ asked: number }>();
            return 1;
          },
        },
      },
      queries: {
        asked: {
          description: "How many.",
          input: z.object({}),
          async run(_args, { shared }) {
            expectTypeOf(await shared.read()).toEqualTypeOf<{ asked: number }>();
            // @ts-expect-error a query only reads
            shared.update(() => undefined);
            return 1;
          },
        },
      },
    });
    definePlugin({
      ...base,
      // @ts-expect-error a key is a text
      shared: { key: () => 7, state: () => ({ asked: 0 }) },
    });
    // @ts-expect-error it begins with something
    definePlugin({ ...base, shared: { key: () => "all" } });
  });
});

describe("the types of replacing what is said", () => {
  it("let a hook that declares it replace the input, and tell it how the input came", () => {
    definePlugin({
      ...base,
      hooks: {
        beforeTurn: {
          replacesInput: true,
          run({ input, arrival }) {
            expectTypeOf(arrival).toEqualTypeOf<"turn" | "steer" | "enqueue">();
            return [replaceInput(input.trim()), abortTurn("closed", "We are closed.")];
          },
        },
      },
    });
    // @ts-expect-error behind a call there is no input to replace
    definePlugin({ ...base, hooks: { afterToolCall: () => replaceInput("x") } });
    // @ts-expect-error a turn is no call
    definePlugin({ ...base, hooks: { beforeTurn: () => deny("no", "No.") } });
  });

  it("tell a stream hook that asks for it when a block is over", () => {
    definePlugin({
      ...base,
      hooks: {
        assistantStream: {
          final: true,
          run({ chunk, final, blockId }) {
            expectTypeOf({ chunk, final, blockId }).toEqualTypeOf<{ chunk: string; final: boolean; blockId: string }>();
            return final ? { chunk, events: [{ name: "over" }] } : chunk;
          },
        },
      },
    });
    // @ts-expect-error only a stream has blocks
    definePlugin({ ...base, hooks: { assistantResponse: { final: true, run: () => undefined } } });
  });
});

describe("the types of a tool that says how far it is", () => {
  it("give it progress for plain data, and let it yield", () => {
    defineTool({
      description: "Looks.",
      inputSchema: z.object({ city: z.string() }),
      async *execute({ city }, { progress }) {
        progress({ asking: city });
        expectTypeOf(progress).returns.toEqualTypeOf<void>();
        yield `Rain in ${city}.`;
      },
    });
  });
});
