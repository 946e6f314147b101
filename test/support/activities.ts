import type { Activity } from "troupe";
import { expect } from "vitest";
import { SHAPES } from "../kernel/turn/activity-shapes.js";

const keysOf = (activity: object) => Object.keys(activity);

/** Activities of one type. */
export function only<T extends Activity["type"]>(
  activities: readonly Activity[],
  type: T,
): Extract<Activity, { type: T }>[] {
  return activities.filter((activity): activity is Extract<Activity, { type: T }> => activity.type === type);
}

/** The same without the time each happened at, or was said. */
export function untimed<T extends { readonly at?: number }>(timed: readonly T[]): Omit<T, "at">[] {
  return timed.map(({ at: _at, ...rest }) => rest);
}

/** What holds for the activities of every turn: plain JSON of a pinned shape, and every model call closed once. */
export function expectWellFormed(activities: readonly Activity[]): void {
  let open: string | undefined;
  for (const activity of activities) {
    expect(JSON.parse(JSON.stringify(activity))).toStrictEqual(activity);
    const pinned: readonly (readonly [object, string])[] = SHAPES[activity.type];
    expect(pinned.flatMap(([example]) => keysOf(example))).toEqual(expect.arrayContaining(keysOf(activity)));
    switch (activity.type) {
      case "model_call_started":
        expect(open).toBeUndefined();
        open = activity.modelCallId;
        break;
      case "model_retry":
      case "model_call_finished":
      case "model_call_failed":
        expect(activity.modelCallId).toBe(open);
        if (activity.type !== "model_retry") open = undefined;
        break;
      case "text_delta":
      case "reasoning_delta":
      case "answer_part":
        expect(open).toBeDefined();
        break;
    }
  }
  expect(open).toBeUndefined();
  expect(activities[0]).toMatchObject({ type: "turn_started", version: 1 });
  expect(activities.at(-1)?.type).toBe("turn_finished");
}
