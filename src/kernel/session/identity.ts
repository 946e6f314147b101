import { isStorableName } from "../ids.js";
import { isRecord } from "../json.js";
import { invalidOptions } from "../refusals.js";

const MAX_TENANT = 128;
const MAX_ENTRIES = 32;
const MAX_NAME = 64;
const MAX_VALUE = 256;

/** Throws `invalid_options` unless it can be the name of a tenant. */
export function checkTenantName(tenant: unknown): string {
  if (typeof tenant === "string" && isName(tenant, MAX_TENANT)) return tenant;
  throw invalidOptions(`tenant is a text of 1 to ${MAX_TENANT} characters without control characters`);
}

/** Throws `invalid_options` unless it is a small object of texts. */
export function checkMetadata(metadata: unknown): Readonly<Record<string, string>> {
  const entries = isRecord(metadata) ? Object.entries(metadata) : undefined;
  const fits = (name: string, value: unknown) =>
    isName(name, MAX_NAME) && typeof value === "string" && value.length <= MAX_VALUE && isStorableName(value);
  if (entries !== undefined && entries.length <= MAX_ENTRIES && entries.every(([name, value]) => fits(name, value)))
    return metadata as Readonly<Record<string, string>>;
  throw invalidOptions(
    `metadata is an object of up to ${MAX_ENTRIES} texts of up to ${MAX_VALUE} characters, under names of up to ${MAX_NAME}`,
  );
}

function isName(text: string, limit: number): boolean {
  return text.length > 0 && text.length <= limit && isStorableName(text);
}
