import type { Clock } from "../../async/index.js";
import { asTroupeError, TroupeError, unknownMethod } from "../../kernel/index.js";
import { type LoadedPlugin, loadChecker, pluginInvalid } from "../../plugin/index.js";
import { type NoteSink, packNote } from "../../tools/index.js";
import {
  Caller,
  type ErrorData,
  type Essentials,
  Lane,
  OwnMap,
  type ServedCall,
  type StageWriter,
} from "../../wire/index.js";
import type { ToolNoteOf } from "../calls/index.js";
import { tooLarge } from "./answer-size.js";
import type { FloatingRejections } from "./floating.js";
import { type FollowedSession, FollowedStates } from "./followed-states.js";
import {
  type Captured,
  type CaptureMode,
  HOOK_LANE_METHODS,
  type HookAnswer,
  type HookLane,
  type HostService,
  hookOf,
  type OpenInstance,
  type PluginHostService,
  unpackFacts,
} from "./plugin-calls.js";
import { type HostAccess, type InstanceOptions, PluginInstance } from "./plugin-instance.js";
import { payloadProblem } from "./plugin-operations.js";
import { HookRuns, type WaitingInRun } from "./serve-run.js";
import { StateBoard } from "./state-board.js";
import type { ThreadLimits } from "./thread-limits.js";

type AttachedLane = Parameters<PluginHostService["attach"]>[0];

/** How long a lane goes on beginning calls before timers and the lanes of other session workers have their turn. */
const BUDGET_MS = 4;

/** The commit asks again for what failed here, and reports it. */
function tryCapture(instance: PluginInstance, mode: CaptureMode): Captured | undefined {
  try {
    return instance.capture(mode === 2);
  } catch {
    return undefined;
  }
}

/** Host services across the thread: the session worker knows the call and so what it was granted. */
function hostAccess({ hostPort, name }: AttachedLane, clock: Clock): HostAccess {
  // No deadline of its own: the call it is made in has one.
  const caller = new Caller<HostService>(hostPort, { name, clock, deadlineMs: Number.POSITIVE_INFINITY });
  hostPort.on("close", () => caller.lose());
  hostPort.on("messageerror", (error) => caller.lose(error));
  return async ({ waiting, method, args, signal }) => {
    const refusal = tooLarge(args, `What was given to ${method}`);
    if (refusal !== undefined) throw refusal;
    const { id, at } = waiting as ServedCall & Partial<WaitingInRun>;
    return caller.to.host({ call: id, at, method, args }, { signal });
  };
}

interface HostParts {
  /** By their places in the group. */
  readonly plugins: readonly LoadedPlugin[];
  readonly stage: StageWriter;
  readonly development: boolean;
  readonly clock: Clock;
  /** Called when the thread ends by its own exit or by what nobody caught: what is known can still be told. */
  readonly lastWords: Set<() => void>;
  readonly limits: ThreadLimits;
  readonly floating: FloatingRejections;
  readonly essentials: Essentials;
}

/** Serves the calls of one session worker. */
export function openHookLane(
  attached: AttachedLane,
  { plugins, stage, development, clock, lastWords, floating, limits, essentials }: HostParts,
): void {
  const host = hostAccess(attached, clock);
  /** By the slot's number. One whose state could not be made or restored fails each of its calls with the reason. */
  const sessions = new OwnMap<number, OpenSession>();

  /** Made within its first call: when the plugin's own code ends the thread there, that call is lost and not made again. */
  const opened = (session: number) => {
    const found = sessions.get(session);
    if (found === undefined) throw unknownSession();
    if (found.instance === undefined) {
      stage.at(found.member);
      found.instance = makeInstance(found.plugin, found.options);
    }
    if (found.instance instanceof TroupeError) throw found.instance;
    return found as OpenSession & { readonly instance: PluginInstance };
  };
  const board = new StateBoard(
    (note) => lane.note("board", note),
    () => lane.counts.sent + 1,
  );
  const followed = new FollowedStates(clock, board, (note) => lane.note("state", note));
  /** A call may change its session's state, which is told once the call is answered and never before. */
  const changes = (call: ServedCall, session: OpenSession): void => {
    if ((session.instance as PluginInstance).stateful) call.subject = session;
  };
  /** What tools say before they answer, by the number of their call. */
  const notes: NoteSink<ServedCall> = {
    clock,
    tell: ({ id }, note) => lane.note("toolNote", [id, ...packNote(note)] satisfies ToolNoteOf),
  };
  /** Before the first arguments are checked: what loading the checker takes is not the plugin's time. */
  const readyToCheck = <S extends OpenSession>(session: S): S => {
    stage.at(session.member);
    if (loadChecker()) stage.next(session.member);
    return session;
  };
  const withState = ({ instance }: OpenSession, capture: CaptureMode, value: unknown): HookAnswer => ({
    value,
    captured: tryCapture(instance as PluginInstance, capture),
  });
  /** What answers stand on was changed while no call was answered: by a timer, or behind an `await`. */
  let foundChanged = false;
  let isHeld = false;
  /** No code of the plugin has run since the call that holds the thread was judged. */
  let isJudged = false;
  /** The call that holds the thread, or did last; one of those that are looked at together. */
  let onStageNow = 0;
  let isTogether = false;
  const blameLast = () => {
    if (!isHeld) stage.enterAgain(attached.lane, onStageNow);
  };
  const onStage = {
    enter(call: number, method: string) {
      isTogether = method === "hook" && !attached.alone;
      if (isTogether) limits.begin();
      else {
        onStage.rested();
        limits.enter();
      }
      isHeld = true;
      isJudged = false;
      onStageNow = call;
      stage.enter(attached.lane, attached.started, call);
    },
    leave() {
      if (!isJudged) onStage.judge();
      isHeld = false;
      stage.leave();
    },
    enterAgain(call: number) {
      limits.enter();
      isTogether = false;
      isHeld = true;
      isJudged = false;
      stage.enterAgain(attached.lane, call);
    },
    rested() {
      limits.rested(blameLast);
    },
    next: (member: number) => stage.next(member),
    /** Code of a plugin has returned and still holds the thread: what was done to the thread since it took it, it did. */
    judge() {
      if (!isTogether) limits.leave();
      if (!foundChanged && essentials.vitalAreChanged) limits.end("patched");
    },
  };
  const runs = new HookRuns({
    lane: attached.lane,
    clock,
    stage: onStage,
    opened(slot) {
      const { instance, member, options } = opened(slot);
      return { instance, member, sessionId: options.sessionId };
    },
    finished: (slot, capture, value) => withState(opened(slot), capture, value),
    changed(call, slots) {
      const changed = slots.map(opened).filter(({ instance }) => instance.stateful);
      if (changed.length > 0) call.subject = changed;
    },
  });

  const calls: { readonly [M in keyof HookLane]: (payload: HookLane[M]["call"], call: ServedCall) => unknown } = {
    hook(payload, call) {
      const [session, kindNumber, capture] = payload;
      const found = opened(session);
      const { options, instance } = found;
      stage.at(found.member);
      changes(call, found);
      const hook = hookOf(kindNumber);
      const value = instance.hook(hook, (context) => unpackFacts(context, hook.kind, options.sessionId, payload), call);
      if (capture === 0) return value;
      return value instanceof Promise
        ? value.then((settled) => withState(found, capture, settled))
        : withState(found, capture, value);
    },
    run: (payload, call) => runs.run(payload, call),
    rest: (payload, call) => runs.rest(payload, call) ?? calls.hook(payload[3], call),
    tool([session, toolId, args, facts], call) {
      const found = readyToCheck(opened(session));
      changes(call, found);
      return found.instance.tool(toolId, args, facts, call, notes);
    },
    operation([session, name, args, sessionId], call) {
      const found = readyToCheck(opened(session));
      changes(call, found);
      return found.instance.operation(name, args, sessionId, call);
    },
    payload([session, source, payload]) {
      const found = sessions.get(session);
      if (found === undefined) throw unknownSession();
      return payloadProblem(readyToCheck(found).plugin, source, payload);
    },
    capture([session, mode], call) {
      const found = opened(session);
      stage.at(found.member);
      changes(call, found);
      return found.instance.capture(mode === 2);
    },
    register([session]): HookLane["register"]["answer"] {
      const { plugin, instance } = opened(session);
      const { contributions, stateful, protocol } = instance;
      if (protocol === undefined) return { contributions, stateful };
      throw pluginInvalid(
        `plugin ${plugin.manifest.id}`,
        'it registered a protocol, which is part of every turn. Give it the tier "inline"',
      );
    },
  };

  const lane = new Lane(attached.port, {
    name: attached.name,
    clock,
    beforeSend() {
      // A state that is read may have getters.
      isJudged = false;
      onStage.rested();
      limits.look();
      followed.write();
    },
    withholds(failed) {
      // Before the answer is on its way.
      if (isHeld) onStage.judge();
      isJudged = isHeld;
      const isChanged = foundChanged || (!isHeld && essentials.vitalAreChanged);
      if (!(failed || isChanged || attached.alone) || !essentials.areChanged) return false;
      // The call that is answered first after the change, or alone on its thread, is the one that made it. Of a change that
      // a call met, or fails by, nobody knows: the thread ends while no call holds it, and its calls are made again.
      if (!foundChanged && (isChanged || attached.alone)) limits.end("patched");
      else clock.nextTick(() => limits.end("patched"));
      return true;
    },
    refusalOf(answer) {
      // What is asked of it may be a getter of the plugin's.
      isJudged = false;
      return tooLarge(answer, "The plugin's answer");
    },
    onLost: () => {
      lastWords.delete(tellLast);
      floating.leave(tellFloating);
    },
    stage: onStage,
    onAnswered: (subject) => {
      if (Array.isArray(subject)) for (const session of subject) followed.add(session as OpenSession);
      else followed.add(subject as OpenSession);
    },
    budgetMs: BUDGET_MS,
    methods: HOOK_LANE_METHODS,
    serve(method, payload, call) {
      foundChanged ||= essentials.vitalAreChanged;
      if (Object.hasOwn(calls, method)) return calls[method as keyof HookLane](payload as never, call);
      throw unknownMethod("A plugin host", method);
    },
    onNote(topic, payload) {
      if (topic === "open") {
        const [number, member, sessionId, captured, init, life, facts] = payload as OpenInstance;
        const options = { sessionId, captured, init, facts, host, development };
        sessions.set(
          number,
          new OpenSession(number, life, { member, plugin: plugins[member] as LoadedPlugin, options }),
        );
      } else if (topic === "close") {
        const closed = sessions.get(payload as number);
        if (closed !== undefined) {
          closed.isBehind = false;
          closed.isClosed = true;
        }
        sessions.delete(payload as number);
        board.release(payload as number);
      } else if (topic === "drop") runs.drop(payload as number);
    },
  });
  const tellLast = () => {
    followed.write();
    followed.tell(Number.POSITIVE_INFINITY);
    lane.flush();
  };
  lastWords.add(tellLast);
  const tellFloating = (report: ErrorData) => lane.note("floating", report);
  floating.tellTo(tellFloating);
}

/** All of one shape: what is read for every answer costs several times as much where shapes differ. */
class OpenSession implements FollowedSession {
  readonly number: number;
  readonly life: number;
  /** The plugin's place in its group. */
  readonly member: number;
  readonly plugin: LoadedPlugin;
  readonly options: InstanceOptions;
  instance: PluginInstance | TroupeError | undefined;
  isBehind = false;
  isClosed = false;
  block: FollowedSession["block"];
  untried = 0;

  constructor(number: number, life: number, of: Pick<OpenSession, "member" | "plugin" | "options">) {
    this.number = number;
    this.life = life;
    this.member = of.member;
    this.plugin = of.plugin;
    this.options = of.options;
    this.instance = undefined;
    this.block = undefined;
  }
}

function unknownSession(): TroupeError {
  return new TroupeError("plugin_session_unknown", "This plugin host has no such session open.");
}

function makeInstance(plugin: LoadedPlugin, options: InstanceOptions): PluginInstance | TroupeError {
  try {
    return new PluginInstance(plugin, options);
  } catch (error) {
    return asTroupeError(error, "plugin_state_failed");
  }
}
