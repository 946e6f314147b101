import { describe, expect, test } from "vitest";
import { TroupeError } from "../../../../src/kernel/index.js";
import { Assignment } from "../../../../src/session/plugins/hosts/assignment.js";

const shared = (shards = 1) => new Assignment({ isolation: "shared", shards });
const SURE = (now: number) => ({ now, certain: true });

describe("which host has a session", () => {
  test("there is one for all while a group has one shard", () => {
    const assignment = shared();
    expect(new Set(["a", "b", "c"].map((id) => assignment.hostOf(id, 0)))).toEqual(new Set(["shard 0"]));
  });

  test("sessions are spread over the shards a group has, each always to the same", () => {
    const assignment = shared();
    assignment.spread(4);
    const ids = Array.from({ length: 400 }, (_, n) => `chat-${n}`);
    const keys = ids.map((id) => assignment.hostOf(id, 0));
    expect(keys).toEqual(ids.map((id) => assignment.hostOf(id, 1)));
    for (const shard of [0, 1, 2, 3]) expect(keys.filter((key) => key === `shard ${shard}`).length).toBeGreaterThan(50);
  });

  test("spreading a group anew is a new version, so that sessions are placed again", () => {
    const assignment = shared();
    const { version } = assignment;
    assignment.spread(2);
    expect(assignment.version).not.toBe(version);
  });

  test("each session has its own where a plugin asks for it", () => {
    const assignment = new Assignment({ isolation: "session", shards: 1 });
    expect([assignment.hostOf("a", 0), assignment.hostOf("b", 0)]).toEqual(["session a", "session b"]);
  });
});

describe("a session that offends", () => {
  test("stays where it is the first time and goes to quarantine the second time", () => {
    const assignment = shared();
    assignment.offend("bad", SURE(0));
    expect(assignment.hostOf("bad", 1)).toBe("shard 0");
    assignment.offend("bad", SURE(2));
    expect(assignment.hostOf("bad", 3)).toBe("quarantine");
    expect(assignment.hostOf("good", 3)).toBe("shard 0");
  });

  test("waits a moment before its next call after its second offence, and is refused from its third", () => {
    const assignment = shared();
    const waits: unknown[] = [];
    for (let offence = 1; offence <= 3; offence++) {
      assignment.offend("bad", SURE(0));
      const admitted = assignment.admit("bad", 0);
      waits.push(admitted instanceof TroupeError ? admitted.code : admitted);
    }
    expect(waits).toEqual([0, 20, "session_quarantined"]);
    expect(assignment.admit("bad", 30_000)).toBe(0);
  });

  test("is like any other again after thirty seconds of good behaviour", () => {
    const assignment = shared();
    for (let offence = 0; offence < 2; offence++) assignment.offend("bad", SURE(0));
    expect(assignment.hostOf("bad", 29_999)).toBe("quarantine");
    expect(assignment.hostOf("bad", 30_000)).toBe("shard 0");
    expect(assignment.isSuspect("bad")).toBe(false);
  });

  test("that was only near is alone for two seconds, counts as innocent, and returns", () => {
    const assignment = shared();
    assignment.offend("near", { now: 0, certain: false });
    expect(assignment.hostOf("near", 1)).toBe("quarantine");
    expect([assignment.offenders, assignment.hasOffended("near"), assignment.admit("near", 1)]).toEqual([0, false, 0]);
    expect(assignment.hostOf("near", 2_000)).toBe("shard 0");
  });

  test("is forgotten when ten thousand others have offended since", () => {
    const assignment = shared();
    for (let offence = 0; offence < 2; offence++) assignment.offend("first", SURE(0));
    for (let other = 0; other < 10_000; other++) assignment.offend(`other-${other}`, SURE(1));
    expect(assignment.isSuspect("first")).toBe(false);
    expect(assignment.offenders).toBe(10_000);
  });
});
