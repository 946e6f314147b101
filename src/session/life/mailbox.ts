/** What waits for its place in a session: which call of the actor's table it is, and what is asked for. */
export interface Mail {
  readonly id: number;
  readonly kind: "turn" | "inputs" | "resume" | "config" | "tools" | "compact" | "append" | "extend" | "operation";
}

/**
 * A queue whose old versions stay as they are, so that a statechart can have it in its context: `front` is taken from,
 * `back` is added to, newest first, and becomes the front when that is empty. A message costs the same however many wait.
 */
export interface Mailbox {
  readonly front: Link | undefined;
  readonly back: Link | undefined;
  readonly size: number;
}

interface Link {
  readonly mail: Mail;
  readonly next: Link | undefined;
}

export const EMPTY_MAILBOX: Mailbox = { front: undefined, back: undefined, size: 0 };

export function addMail({ front, back, size }: Mailbox, mail: Mail): Mailbox {
  if (front === undefined) return { front: { mail, next: undefined }, back: undefined, size: 1 };
  return { front, back: { mail, next: back }, size: size + 1 };
}

/** Throws when nothing waits. */
export function firstMail({ front }: Mailbox): Mail {
  if (front === undefined) throw new RangeError("The mailbox is empty.");
  return front.mail;
}

export function withoutFirst({ front, back, size }: Mailbox): Mailbox {
  if (front === undefined || size === 1) return EMPTY_MAILBOX;
  if (front.next !== undefined) return { front: front.next, back, size: size - 1 };
  let turned: Link | undefined;
  for (let link = back; link !== undefined; link = link.next) turned = { mail: link.mail, next: turned };
  return { front: turned, back: undefined, size: size - 1 };
}
