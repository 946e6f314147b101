import { createTroupe } from "troupe";
import { codeOf, Neighbours, pause, slowestOfEach, type TurnSample } from "../measuring/neighbours.js";
import { answerWith } from "../measuring/own-process.js";
import type { Deed } from "../plugins/deeds.js";

/** What is measured in one process: quiet and noise in turns, so that what else the machine does hits both alike. */
export interface NoisyPlan {
  readonly deed: Deed;
  readonly good: number;
  readonly paceMs: number;
  readonly blockedMs: number;
  /** Until the compiler has seen some turns. */
  readonly warmMs: number;
  readonly sliceMs: number;
  /** Slices of quiet, each with one of noise behind it. 0: the bad session offends once. */
  readonly slices: number;
}

export interface NoisySample {
  /** Good turns of each quiet slice. */
  readonly quiet: readonly (readonly TurnSample[])[];
  /** Good turns within the noise, once the bad session had offended twice. */
  readonly noisy: readonly TurnSample[];
  /** Those of them that were under way while the bad session's deed was, and not refused at once. */
  readonly during: readonly TurnSample[];
  /** Of all good turns. */
  readonly refused: Readonly<Record<string, number>>;
  /** Of each good session the slowest turn under way during the first offence. */
  readonly first: readonly number[];
  readonly offences: readonly { readonly at: number; readonly ms: number; readonly how: string }[];
  /** Processor time over time while it was quiet: how many cores the good sessions use. */
  readonly quietCores: number;
  readonly restarts: number;
}

interface Slice {
  readonly from: number;
  readonly to: number;
}

interface Offence {
  readonly at: number;
  readonly ms: number;
  readonly how: string;
}

answerWith(await measure(JSON.parse(process.argv[2] ?? "{}") as NoisyPlan));

async function measure(plan: NoisyPlan): Promise<NoisySample> {
  const { deed, good, paceMs, blockedMs, warmMs, sliceMs, slices } = plan;
  await using troupe = await createTroupe({
    sessionWorkers: 2,
    plugins: [{ module: new URL("../plugins/deeds.js", import.meta.url), blockedMs }],
  });
  const bad = await troupe.session("bad");
  await bad.turn("hi");
  const sessions = await Promise.all(Array.from({ length: good }, (_, n) => troupe.session(`good-${n}`)));
  const neighbours = new Neighbours(sessions, paceMs);
  await pause(warmMs);

  const offences: Offence[] = [];
  const offend = async () => {
    const at = performance.now();
    const how = await bad.turn(`deed:${deed}`).then(() => "finished", codeOf);
    offences.push({ at, ms: performance.now() - at, how });
    await pause(paceMs);
  };
  const quiet: Slice[] = [];
  const noisy: Slice[] = [];
  let cpuMs = 0;
  for (let n = 0; n < slices; n++) {
    const cpu = process.cpuUsage();
    quiet.push(await sliceOf(() => pause(sliceMs)));
    const { user, system } = process.cpuUsage(cpu);
    cpuMs += (user + system) / 1000;
    noisy.push(
      await sliceOf(async () => {
        for (const until = performance.now() + sliceMs; performance.now() < until; ) await offend();
      }),
    );
  }
  if (slices === 0) await offend();
  await pause(paceMs);
  await neighbours.stop();

  const { samples, refusals } = neighbours;
  const [first, second] = offences;
  const twice = second === undefined ? Number.NEGATIVE_INFINITY : second.at + second.ms;
  const loud = samples.filter(({ at }) => at >= twice && noisy.some(({ from, to }) => at >= from && at < to));
  const deeds = offences.filter(({ how }) => !how.includes("session_quarantined"));
  return {
    // Not those that were under way when the noise began: they felt it.
    quiet: quiet.map(({ from, to }) => samples.filter(({ at, ms }) => at >= from && at + ms < to)),
    noisy: loud,
    during: loud.filter((turn) => deeds.some((each) => turn.at < each.at + each.ms && turn.at + turn.ms > each.at)),
    refused: refusals,
    first: first === undefined ? [] : slowestOfEach(samples, first.at, first.at + first.ms),
    offences,
    quietCores: cpuMs / quiet.reduce((sum, { from, to }) => sum + to - from, 0),
    restarts: (await troupe.stats()).plugins[0]?.restarts ?? 0,
  };
}

async function sliceOf(what: () => Promise<void>): Promise<Slice> {
  const from = performance.now();
  await what();
  return { from, to: performance.now() };
}
