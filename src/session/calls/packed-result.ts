import {
  type AttemptRecord,
  type ModelCallRecord,
  modelCallIdOf,
  NO_USAGE,
  type TurnResult,
  type Usage,
} from "../../kernel/index.js";

/**
 * A turn's result on its way to the main thread. Cloning an object costs mostly its keys, and the calls of an ordinary
 * turn all have the same: they go as values, and only what is out of the ordinary goes as it is.
 */
export type TurnReply = Omit<TurnResult, "modelCallRecords"> & { readonly modelCallRecords: PackedCalls };

/** The records themselves, or the model and the route of all of them and then {@link WIDTH} numbers for each. */
type PackedCalls = readonly ModelCallRecord[] | readonly [model: string, route: string, ...calls: number[]];

const COUNTERS = Object.keys(NO_USAGE) as readonly (keyof Usage)[];
const FIRST_CALL = 2;
const WIDTH = 2 + COUNTERS.length;

export function packResult(result: TurnResult): TurnReply {
  const { modelCallRecords: records } = result;
  const [first] = records;
  if (first === undefined || !records.every((record) => isOrdinary(record, first))) return result;
  const packed: [string, string, ...number[]] = [first.model, first.route];
  for (const { step, attempts } of records) {
    const [{ durationMs, usage }] = attempts as readonly [OrdinaryAttempt];
    packed.push(step, durationMs, ...COUNTERS.map((counter) => usage[counter]));
  }
  return { ...result, modelCallRecords: packed };
}

export function unpackResult(reply: TurnReply): TurnResult {
  const { turnId, modelCallRecords: packed } = reply;
  if (!isPacked(packed)) return { ...reply, modelCallRecords: packed };
  const [model, route] = packed;
  const records: ModelCallRecord[] = [];
  for (let at = FIRST_CALL; at < packed.length; at += WIDTH) {
    const [step, durationMs, ...counted] = packed.slice(at, at + WIDTH) as [number, number, ...number[]];
    const usage = Object.fromEntries(COUNTERS.map((counter, place) => [counter, counted[place]])) as unknown as Usage;
    const attempts: readonly AttemptRecord[] = [
      { attempt: 1, outcome: "completed", durationMs, outputStarted: true, usage },
    ];
    records.push({ modelCallId: modelCallIdOf(turnId, step), step, model, route, attempts });
  }
  return { ...reply, modelCallRecords: records };
}

type OrdinaryAttempt = AttemptRecord & Required<Pick<AttemptRecord, "usage">>;

/** Answered at the first attempt, by the same model as the others, and nothing to say about it but what it cost. */
function isOrdinary({ model, route, attempts, replayDrops }: ModelCallRecord, first: ModelCallRecord): boolean {
  const [attempt] = attempts;
  return (
    attempts.length === 1 &&
    attempt?.outcome === "completed" &&
    attempt.usage !== undefined &&
    attempt.evidence === undefined &&
    replayDrops === undefined &&
    model === first.model &&
    route === first.route
  );
}

function isPacked(calls: PackedCalls): calls is readonly [string, string, ...number[]] {
  return typeof calls[0] === "string";
}
