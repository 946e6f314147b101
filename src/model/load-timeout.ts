import { TroupeError } from "../kernel/index.js";

/** The error of a model whose module was not imported, or whose model was not made, in time. */
export function modelLoadTimeout(url: string, ms: number): TroupeError {
  return new TroupeError(
    "model_load_timeout",
    `The model module ${url} was not loaded within ${ms} ms: it, or a module it imports, is still in a top-level await, or the function it exports, or the host's secrets for it, have not returned. Move what it waits for into the model's calls, or give it more time with modelLoadMs.`,
    { retryable: true, details: { url, modelLoadMs: ms } },
  );
}
