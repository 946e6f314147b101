import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { beginningBefore, checkWindow, type Message, windowPlace } from "../../../src/kernel/index.js";

const WINDOW = { maxMessages: 40, keepMessages: 10 };

describe("a window", () => {
  it("shows all of a history that fits", () => {
    expect([0, 1, 39, 40].map((count) => windowPlace(count, WINDOW))).toEqual([0, 0, 0, 0]);
  });

  it("is cut to what it keeps when there is one message too many, and then stays until it is full again", () => {
    expect(windowPlace(41, WINDOW)).toBe(30);
    expect(windowPlace(70, WINDOW)).toBe(30);
    expect(windowPlace(71, WINDOW)).toBe(60);
  });

  it("keeps half of what it may have when nobody says how much", () => {
    expect(windowPlace(41, { maxMessages: 40 })).toBe(20);
    expect(windowPlace(3, { maxMessages: 2 })).toBe(1);
  });

  it("has never more than it may, never fewer than it keeps, and moves only forward, once per block", () => {
    const windows = fc
      .tuple(fc.integer({ min: 2, max: 60 }), fc.integer({ min: 1, max: 60 }))
      .filter(([max, keep]) => keep < max)
      .map(([maxMessages, keepMessages]) => ({ maxMessages, keepMessages }));
    fc.assert(
      fc.property(windows, fc.integer({ min: 0, max: 500 }), (window, count) => {
        const [place, next] = [windowPlace(count, window), windowPlace(count + 1, window)];
        expect(count - place).toBeLessThanOrEqual(window.maxMessages);
        if (place > 0) expect(count - place).toBeGreaterThan(window.keepMessages);
        expect([0, window.maxMessages - window.keepMessages]).toContain(next - place);
      }),
    );
  });

  it("begins where a conversation can: with what a user said, and with no tool's result", () => {
    const roles = ["user", "assistant", "tool", "assistant", "user", "assistant"] as const;
    const messages = roles.map((role, index): Message => ({ id: `t1.${index}`, role, parts: [] }));
    expect([0, 1, 2, 3, 4, 5, 9].map((index) => beginningBefore(messages, index))).toEqual([0, 0, 0, 0, 4, 4, 4]);
    expect(beginningBefore(messages.slice(1, 4), 2)).toBeUndefined();
  });

  it("that cannot be one is refused with what is wrong", () => {
    const refused = (window: unknown) => {
      try {
        return checkWindow(window);
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(refused(40)).toBe("The window cannot be used: it is an object such as { maxMessages: 40 }.");
    expect(refused({ maxMessages: 1 })).toBe("The window cannot be used: maxMessages must be a whole number from 2.");
    expect(refused({ maxMessages: 4, keepMessages: 4 })).toBe(
      "The window cannot be used: keepMessages must be a whole number from 1, and less than maxMessages.",
    );
    expect(refused({ maxMesages: 4 })).toBe(
      'The window cannot be used: window has no option "maxMesages". Did you mean "maxMessages"?',
    );
  });
});
