import { checkTenantBudget, checkTenantName, isRecord, type TenantBudget } from "../../kernel/index.js";
import { checkFields, invalid } from "./option-checks.js";
import type { TenantBudgets } from "./troupe-options.js";

/** What each tenant has; what a function says is checked when it says it. */
export function resolveTenantBudgets(
  given: TenantBudgets | undefined,
): ((tenant: string) => TenantBudget | null | undefined) | undefined {
  if (given === undefined || typeof given === "function") return given;
  if (!isRecord(given)) throw invalid("tenantBudgets is { tenants, default }, or a function of the tenant");
  checkFields(given, { tenants: true, default: true }, "tenantBudgets");
  const { tenants = {}, default: others } = given as Exclude<TenantBudgets, (tenant: string) => unknown>;
  if (!isRecord(tenants)) throw invalid("tenantBudgets.tenants is an object by tenant");
  if (others !== undefined) checkTenantBudget(others);
  const byTenant = new Map<string, TenantBudget>();
  for (const [tenant, budget] of Object.entries(tenants))
    if (budget !== undefined) byTenant.set(checkTenantName(tenant), checkTenantBudget(budget));
  return (tenant) => byTenant.get(tenant) ?? others;
}
