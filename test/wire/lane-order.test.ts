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
