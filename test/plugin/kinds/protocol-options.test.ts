import { describe, expect, test } from "vitest";
import { checkTurnOptions, decodeTurnOptions, mergeTurnOptions } from "../../../src/plugin/index.js";

const invalid = expect.objectContaining({ code: "protocol_options_invalid" });
const options = (payload: never, schemaVersion = 1) => ({ schemaVersion, payload });

describe("turn options of a protocol", () => {
  // §15.83
  test("are read under their own schema version and no other", () => {
    expect(decodeTurnOptions({ schemaVersion: 3, payload: { a: 1 } }, 3)).toEqual({ a: 1 });
    expect(decodeTurnOptions({ schemaVersion: 3 }, 3)).toBeNull();
    for (const broken of [undefined, null, {}, { payload: 1 }, { schemaVersion: "3" }, { schemaVersion: 2.5 }]) {
      expect(() => decodeTurnOptions(broken, 3)).toThrow(invalid);
    }
    expect(() => decodeTurnOptions({ schemaVersion: 2, payload: 1 }, 3)).toThrow("they have schema version 2, not 3");
  });

  // §15.83
  test("from outside have a schema version, whichever it is", () => {
    expect(checkTurnOptions({ schemaVersion: 9, payload: 1, stranger: true })).toEqual({
      schemaVersion: 9,
      payload: 1,
    });
    for (const broken of [7, null, "options", {}, { schemaVersion: null }]) {
      expect(() => checkTurnOptions(broken)).toThrow(invalid);
    }
  });

  // §15.83
  test("of a turn are laid over the session's key by key, and only one level deep", () => {
    const session = options({ a: 1, deep: { x: 1 } } as never);
    expect(mergeTurnOptions(session, options({ b: 2, deep: { y: 2 } } as never))).toEqual({
      schemaVersion: 1,
      payload: { a: 1, b: 2, deep: { y: 2 } },
    });
    expect(mergeTurnOptions(session, undefined)).toBe(session);
    expect(mergeTurnOptions(undefined, session)).toBe(session);
  });

  // §15.83
  test.each([[[1]], [null], [7], ["text"]])("that are no object replace the session's as a whole: %j", (payload) => {
    const turn = options(payload as never);
    expect(mergeTurnOptions(options({ a: 1 } as never), turn)).toBe(turn);
    expect(mergeTurnOptions(turn, options({ a: 1 } as never))).toEqual({ schemaVersion: 1, payload: { a: 1 } });
  });

  // §15.83
  test("of another schema version than the session's are refused", () => {
    expect(() => mergeTurnOptions(options({} as never), options({} as never, 2))).toThrow(invalid);
  });
});
