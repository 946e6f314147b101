import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { httpFetch } from "troupe/model";

// Loaded on every session worker; the address stands in the module's own URL.
const baseURL = new URL(import.meta.url).searchParams.get("base") ?? "http://127.0.0.1:11434/v1";

export default createOpenAICompatible({ name: "local", baseURL, fetch: httpFetch })("tiny");
