import type { Clock } from "../../../async/index.js";
import { memberOf } from "../../../wire/index.js";
import type { HookLane } from "../../plugin-thread/index.js";
import type { PluginLink } from "../plugin-link.js";
import type { AskedServices } from "./asked-services.js";
import {
  AT_MOST_ONCE,
  heldThread,
  kindOf,
  type LostCall,
  lostCall,
  perhapsDone,
  reasonOfEnd,
  runApart,
} from "./held-thread.js";
import { type HostLink, type OrphanOf, type Placed, slotsIn } from "./host-link.js";

/** How often a call is made again that had begun on a thread that was lost, and one that had not. */
const MOST_REMADE = 2;
const MOST_SENT_AGAIN = 8;

interface LostCallsParts {
  readonly name: string;
  readonly clock: Clock;
  /** By the plugins' places in the group. */
  readonly links: readonly Pick<PluginLink, "manifest">[];
  readonly services: Pick<AskedServices, "again">;
  readonly placedAt: (slot: number) => Placed | undefined;
  /** The host of a slot from now on, once it is there. */
  readonly settled: (placed: Placed) => Promise<HostLink>;
}

/** What becomes of calls whose thread was lost: each is made again, or fails with the plugin's name and the thread's end. */
export class LostCalls {
  readonly #parts: LostCallsParts;
  readonly #remade = new WeakMap<object, number>();

  constructor(parts: LostCallsParts) {
    this.#parts = parts;
  }

  /** Makes a call again that did not end its thread, unless it may have done its work, or has met too many ends. */
  again(orphan: OrphanOf, stage: Int32Array): void {
    const { method, payload, fate, placed, reject } = orphan;
    const remade = this.#remade.get(payload as object) ?? 0;
    const giveUp = async () => reject(lostCall(await this.#factsOf(orphan, stage), remade + 1));
    if (fate !== "unstarted" && AT_MOST_ONCE.includes(method as keyof HookLane))
      reject(perhapsDone(this.#parts.name, method));
    else if (placed === undefined || remade >= (fate === "unstarted" ? MOST_SENT_AGAIN : MOST_REMADE)) void giveUp();
    else {
      this.#remade.set(payload as object, remade + 1);
      this.#parts.services.again(method, payload);
      void this.#makeAgain(placed, orphan).then((isInTime) => {
        if (!isInTime) void giveUp();
      });
    }
  }

  /** The call that ended its thread. */
  async reject(orphan: OrphanOf, stage: Int32Array): Promise<void> {
    orphan.reject(heldThread(await this.#factsOf(orphan, stage)));
  }

  /** False when the call's first deadline is over. */
  async #makeAgain(placed: Placed, orphan: OrphanOf): Promise<boolean> {
    const { settled, placedAt } = this.#parts;
    const host = await settled(placed);
    for (const number of orphan.method === "run" ? slotsIn(orphan.payload) : []) {
      const member = placedAt(number);
      if (member !== undefined && (await settled(member)) === host) continue;
      orphan.reject(runApart());
      return true;
    }
    return host.again(placed, orphan);
  }

  /** Which plugin a lost call was at, and how its thread ended. */
  async #factsOf({ method, payload, placed }: OrphanOf, stage: Int32Array): Promise<LostCall> {
    const { links, name, clock } = this.#parts;
    const member = method === "run" ? memberOf(stage) : (placed?.member ?? 0);
    const plugin = links[member]?.manifest.id ?? name;
    const reason = await reasonOfEnd(clock, stage);
    return { plugin, call: kindOf(method, payload) ?? method, sessionId: placed?.slot.sessionId, reason };
  }
}
