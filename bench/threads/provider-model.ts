import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { httpFetch } from "troupe/model";

/** The real client, of the server and with the fetch that are named in this module's own URL. */
const { searchParams } = new URL(import.meta.url);

export const clientOf = (baseURL: string, fetch: string) =>
  createOpenAICompatible({ name: "local", baseURL, ...(fetch === "http" && { fetch: httpFetch }) })("tiny");

export default clientOf(searchParams.get("base") ?? "", searchParams.get("fetch") ?? "");
