import { createAnthropic } from "@ai-sdk/anthropic";
import { httpFetch } from "troupe/model";

/** Anthropic's own client, of the server that is named in this module's URL. */
const baseURL = new URL(import.meta.url).searchParams.get("base") ?? "";

export default createAnthropic({ baseURL, apiKey: "not-a-key", fetch: httpFetch })("claude-bench");
