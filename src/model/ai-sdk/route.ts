/** What names a model of the AI SDK, and where its provider packages keep its address. */
interface Routed {
  readonly provider: string;
  readonly modelId: string;
}
type Address = string | ((options: { readonly path: string; readonly modelId: string }) => unknown);

/**
 * Who answers: provider, model and endpoint. The same model behind another gateway is another route, because what one
 * signs the other need not accept. The specification has no field for the endpoint; the provider packages keep it in
 * their `config`, as `baseURL`, `baseUrl` or `url()`. A model that keeps it elsewhere is told by provider and model alone.
 */
export function aiSdkRoute(model: Routed): string {
  const id = `${model.provider}:${model.modelId}`;
  const endpoint = endpointOf(model);
  return endpoint === undefined ? id : `${id}@${endpoint}`;
}

function endpointOf(model: Routed): string | undefined {
  const { config } = model as { readonly config?: Partial<Record<"baseURL" | "baseUrl" | "url", Address>> };
  const address = config?.baseURL ?? config?.baseUrl ?? config?.url;
  try {
    const said = typeof address === "function" ? address({ path: "", modelId: model.modelId }) : address;
    // Only where it is: user names, passwords and keys in the query are nobody's business.
    const { origin, pathname } = new URL(String(said));
    return `${origin}${pathname}`;
  } catch {
    return undefined;
  }
}
