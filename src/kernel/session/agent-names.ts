import { TroupeError } from "../errors.js";
import { fingerprint } from "../ids.js";
import { invalidAgent } from "../refusals.js";
import { knownInstead } from "../suggest.js";

/** `support@3` in its parts. */
export interface AgentName {
  readonly agent: string;
  /** Undefined for an agent that was registered without one: older than every version. */
  readonly version: string | undefined;
}

/** An agent as far as choosing a version looks at it. */
export interface NamedAgent {
  /** With its version: `support@3`. */
  readonly name: string;
  /** The share of new sessions it takes from the newest version that has none, of 1. */
  readonly canary?: number;
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$/;
const VERSION = /^\d{1,9}(?:\.\d{1,9}){0,2}(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?$/;
const MAX_LENGTH = 160;

/**
 * The parts of an agent's name; `invalid_agent` when it is none.
 *
 * @example
 * readAgentName("support@3"); // { agent: "support", version: "3" }
 * readAgentName("support"); // { agent: "support", version: undefined }
 */
export function readAgentName(name: unknown): AgentName {
  if (typeof name !== "string" || name.length > MAX_LENGTH)
    throw invalidAgent("its name must be a text such as support@3");
  const at = name.indexOf("@");
  const [agent, version] = at === -1 ? [name, undefined] : [name.slice(0, at), name.slice(at + 1)];
  if (!NAME.test(agent))
    throw invalidAgent(
      `${JSON.stringify(name)} is no name: letters, digits, dots, dashes and slashes, then @ and a version`,
    );
  if (version !== undefined && !VERSION.test(version))
    throw invalidAgent(`${JSON.stringify(name)} has no version behind the @: write 3, 3.1, 3.1.4 or 4-beta.1`);
  return { agent, version };
}

/**
 * Which of two versions is newer, as SemVer has it: numbers part by part, a pre-release before its release, and a missing
 * part is 0. No version at all is older than any. Below 0 when `a` is the older one.
 *
 * @example
 * compareVersions("3.9", "3.10"); // < 0
 * compareVersions("4-beta", "4"); // < 0
 * compareVersions("3", "3.0.0"); // 0
 */
export function compareVersions(a: string | undefined, b: string | undefined): number {
  if (a === undefined || b === undefined) return Number(a !== undefined) - Number(b !== undefined);
  const [one, other] = [partsOf(a), partsOf(b)];
  for (let n = 0; n < 3; n++) {
    const difference = (one.numbers[n] ?? 0) - (other.numbers[n] ?? 0);
    if (difference !== 0) return difference;
  }
  return comparePreReleases(one.preRelease, other.preRelease);
}

function partsOf(version: string): { readonly numbers: readonly number[]; readonly preRelease: readonly string[] } {
  const dash = version.indexOf("-");
  const [numbers, preRelease] = dash === -1 ? [version, ""] : [version.slice(0, dash), version.slice(dash + 1)];
  return { numbers: numbers.split(".").map(Number), preRelease: preRelease === "" ? [] : preRelease.split(".") };
}

function comparePreReleases(a: readonly string[], b: readonly string[]): number {
  // What has none is the release itself.
  if (a.length === 0 || b.length === 0) return Number(a.length === 0) - Number(b.length === 0);
  for (let n = 0; n < Math.max(a.length, b.length); n++) {
    const [one, other] = [a[n], b[n]];
    if (one === undefined || other === undefined) return one === undefined ? -1 : 1;
    if (one === other) continue;
    const [isNumber, otherIsNumber] = [/^\d+$/.test(one), /^\d+$/.test(other)];
    if (isNumber && otherIsNumber && Number(one) !== Number(other)) return Number(one) - Number(other);
    if (isNumber !== otherIsNumber) return isNumber ? -1 : 1;
    return one < other ? -1 : 1;
  }
  return 0;
}

/** The registered versions of an agent, the newest first. */
function versionsOf<A extends NamedAgent>(registered: Iterable<A>, agent: string): A[] {
  return [...registered]
    .map((each) => ({ each, name: readAgentName(each.name) }))
    .filter(({ name }) => name.agent === agent)
    .sort((a, b) => compareVersions(b.name.version, a.name.version))
    .map(({ each }) => each);
}

/**
 * The agent a session gets for a name: exactly the version that is asked for; without one the newest that is no canary,
 * or a canary for its share of the sessions. The same session always gets the same answer from the same agents. Undefined
 * when there is none.
 *
 * @example
 * chooseAgent([{ name: "support@3" }, { name: "support@4", canary: 0.1 }], "support", "chat-42");
 */
export function chooseAgent<A extends NamedAgent>(
  registered: Iterable<A>,
  asked: string,
  sessionId: string,
): A | undefined {
  const { agent, version } = readAgentName(asked);
  const versions = versionsOf(registered, agent);
  if (version !== undefined) return versions.find(({ name }) => name === asked);
  // Salted with the agent's name: sessions in the canary of one agent are not those in the canary of every other.
  const place = fingerprint(`${agent}\n${sessionId}`) / 2 ** 53;
  let share = 0;
  for (const each of versions) {
    share += each.canary ?? 0;
    if (place < share) return each;
  }
  return versions.find(({ canary }) => canary === undefined) ?? versions[0];
}

/** Throws `invalid_agent` when two of them are the same version, as `support@3` and `support@3.0` are. */
export function checkVersions(names: readonly string[]): void {
  const seen: (AgentName & { readonly name: string })[] = [];
  for (const name of names) {
    const parts = readAgentName(name);
    const twin = seen.find((each) => each.agent === parts.agent && compareVersions(each.version, parts.version) === 0);
    if (twin !== undefined) throw invalidAgent(`${twin.name} and ${name} are the same version`);
    seen.push({ ...parts, name });
  }
}

/** Nobody registered the agent, or its version is gone. */
export function agentUnknown(name: string, registered: readonly string[], advice = ""): TroupeError {
  const { agent, version } = readAgentName(name);
  const versions = versionsOf(
    registered.map((each) => ({ name: each })),
    agent,
  ).map((each) => each.name);
  const agents = version === undefined ? registered.map((each) => readAgentName(each).agent) : registered;
  const others = versions.length > 0 ? `There are: ${versions.join(", ")}.` : knownInstead(name, [...new Set(agents)]);
  const message = `There is no agent ${name}. ${others}${advice}`;
  return new TroupeError("agent_unknown", message, { details: { agent: name } });
}
