import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const src = fileURLToPath(new URL("../../src", import.meta.url));

/** A place in src that makes errors of one code: `new TroupeError("code", …)` or `refusal("code", …)`. */
export interface Factory {
  readonly code: string;
  readonly place: string;
  /** As the place says it: always, never, or by something that only the running program knows. */
  readonly retryable: true | false | "sometimes";
}

export interface SourceCodes {
  /** Literals where any code can stand: `code: "…"` and `toolFailure(kind, "…", …)`. TypeScript checks every other place. */
  readonly open: readonly { readonly code: string; readonly place: string }[];
  readonly factories: readonly Factory[];
  /** Every literal of src; a template such as `${what}_module_invalid` is its end. */
  readonly literals: ReadonlySet<string>;
}

/** The codes that stand in src, the table of codes itself and the test suites for stores left out. */
export function sourceCodes(): SourceCodes {
  const open: { code: string; place: string }[] = [];
  const factories: Factory[] = [];
  const literals = new Set<string>();
  for (const file of readdirSync(src, { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts") || file.startsWith(join("kernel", "codes")) || file.startsWith("testing")) continue;
    const source = ts.createSourceFile(file, readFileSync(join(src, file), "utf8"), ts.ScriptTarget.Latest);
    const visit = (node: ts.Node): void => {
      const place = `${file}:${source.getLineAndCharacterOfPosition(Math.max(node.pos, 0)).line + 1}`;
      if (ts.isStringLiteralLike(node)) literals.add(node.text);
      if (ts.isTemplateExpression(node)) literals.add(node.templateSpans.at(-1)?.literal.text ?? "");
      if (ts.isPropertyAssignment(node) && nameOf(node.name) === "code" && ts.isStringLiteral(node.initializer))
        open.push({ code: node.initializer.text, place });
      if (ts.isCallExpression(node) || ts.isNewExpression(node)) {
        const [first, second] = node.arguments ?? [];
        const called = nameOf(node.expression);
        if (called === "toolFailure" && second !== undefined && ts.isStringLiteral(second))
          open.push({ code: second.text, place });
        if ((called === "TroupeError" || called === "refusal") && first !== undefined && ts.isStringLiteral(first))
          factories.push({ code: first.text, place, retryable: retryableOf(node) });
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
  return { open, factories, literals };
}

function nameOf(node: ts.Node): string | undefined {
  return ts.isIdentifier(node) ? node.text : undefined;
}

function retryableOf(call: ts.CallExpression | ts.NewExpression): Factory["retryable"] {
  const options = call.arguments?.[2];
  if (options === undefined || !ts.isObjectLiteralExpression(options))
    return options === undefined ? false : "sometimes";
  const said = options.properties.find(({ name }) => name !== undefined && nameOf(name) === "retryable");
  if (said === undefined) return options.properties.some(ts.isSpreadAssignment) ? "sometimes" : false;
  if (!ts.isPropertyAssignment(said)) return "sometimes";
  if (said.initializer.kind === ts.SyntaxKind.TrueKeyword) return true;
  return said.initializer.kind === ts.SyntaxKind.FalseKeyword ? false : "sometimes";
}
