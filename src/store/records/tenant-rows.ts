import type { BudgetPeriod } from "../../kernel/index.js";

/** The table with what each tenant has spent in each period: numbers of nobody's, tokens and then cost. */
export const TENANT_SPENDING = "tenant_spending";
/** What a host said of single tenants while it ran, by tenant. */
export const TENANT_BUDGETS = "tenant_budgets";

export function tenantRowKey(tenant: string, { name }: Pick<BudgetPeriod, "name">): string {
  return `${name}:${tenant}`;
}
