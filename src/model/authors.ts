/** What modules of models import as `troupe/model`. */
export type { ModelEvent, ModelRequest, ModelResponse, Usage } from "../kernel/index.js";
export type { Model } from "./boundary/index.js";
export { createHttpFetch, type HttpFetchOptions, httpFetch } from "./transport/index.js";
