import { expect, test } from "vitest";
import { lanePair } from "./threads.js";

/** The other side says something beside its answer. Each note is told with how many calls still wait when it arrives. */
async function notesBesideAnAnswer(say: (note: (topic: string, payload: unknown) => void) => void): Promise<unknown[]> {
  const heard: unknown[] = [];
  const { left, right } = lanePair(
    { onNote: (topic) => heard.push([topic, left.pending]) },
    {
      serve: () => {
        say((topic, payload) => right.note(topic, payload));
        return "answer";
      },
    },
  );
  heard.push(await left.call("ask", 0));
  return heard;
}

test("what was noted before an answer in the same batch is heard before the call is settled", async () => {
  const heard = await notesBesideAnAnswer((note) => {
    note("first", 1);
    note("second", 2);
  });
  expect(heard).toEqual([["first", 1], ["second", 1], "answer"]);
});

test("an answer overtakes no note when the batch is sent entry by entry, because one of them cannot be cloned", async () => {
  const heard = await notesBesideAnAnswer((note) => {
    note("first", 1);
    note("lost", () => undefined);
    note("second", 2);
  });
  expect(heard).toEqual([["first", 1], ["second", 1], "answer"]);
});

test("an answer with a thousand notes beside it is read by a side that believes nothing, as hooks of many plugins in one group send when they begin", async () => {
  const heard: unknown[] = [];
  let isSaid = false;
  const { left, right } = lanePair(
    { foreign: true, onNote: (_, payload) => heard.push(payload) },
    {
      serve: () => "answer",
      beforeSend() {
        if (!isSaid) for (let n = 0; n < 1_000; n++) right.note("board", n);
        isSaid = true;
      },
    },
  );
  expect(await left.call("ask", 0)).toBe("answer");
  await left.call("ask", 0);
  expect(heard).toHaveLength(1_000);
  expect(right.counts.sent).toBe(2);
});
