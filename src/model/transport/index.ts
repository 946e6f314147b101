/** HTTP for providers: a `fetch` on Node's own client. Imported by model modules, never by the runtime. */
export * from "./http-fetch.js";
