import type { TroupeError } from "../errors.js";

/** A file that goes with a turn: its bytes, something stored before, or an address. */
export type AttachmentSource =
  | { readonly kind: "inline"; readonly mediaType: string; readonly bytes: Uint8Array; readonly name?: string }
  | {
      readonly kind: "stored";
      readonly mediaType: string;
      readonly hash: string;
      readonly bytes: number;
      readonly name?: string;
    }
  | { readonly kind: "url"; readonly mediaType: string; readonly url: string; readonly name?: string };

/** Which attachments a host lets in. */
export interface AttachmentPolicy {
  /** Addresses pass to the provider unread: all, none, or those of these hosts. Default none. */
  readonly urls: boolean | readonly string[];
  /** Of one attachment. */
  readonly maxBytes: number;
}

export const DEFAULT_ATTACHMENTS: AttachmentPolicy = { urls: false, maxBytes: 20 * 1024 * 1024 };

const MEDIA_TYPE = /^[a-z]+\/[a-z0-9.+-]+$/i;
const HASH = /^[A-Za-z0-9_-]{43}$/;

/** `image/png`, and not `image/*` or `png`. */
export function isMediaType(text: unknown): text is string {
  return typeof text === "string" && MEDIA_TYPE.test(text);
}

/** The attachment as it is let in by the policy, or throws what `refuse` makes of the reason. */
export function admitAttachment(
  source: AttachmentSource,
  policy: AttachmentPolicy,
  refuse: (why: string) => TroupeError,
): AttachmentSource {
  if (!isMediaType(source.mediaType)) throw refuse(`${JSON.stringify(source.mediaType)} is no media type`);
  switch (source.kind) {
    case "inline":
      if (source.bytes.byteLength > policy.maxBytes)
        throw refuse(`an attachment has ${source.bytes.byteLength} bytes; ${policy.maxBytes} are allowed`);
      return source;
    case "stored":
      if (!HASH.test(source.hash)) throw refuse("a stored attachment needs the hash it was stored under");
      return source;
    case "url":
      return { ...source, url: admitUrl(source.url, policy.urls, refuse) };
  }
}

function admitUrl(text: string, allowed: AttachmentPolicy["urls"], refuse: (why: string) => TroupeError): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:"))
    throw refuse("an attachment's address must be an http(s) URL");
  const passes = typeof allowed === "boolean" ? allowed : allowed.includes(url.hostname);
  if (!passes) throw refuse(`attachments from ${url.hostname} are not allowed here`);
  return url.href;
}
