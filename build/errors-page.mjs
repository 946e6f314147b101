// Writes docs/errors.md from the table of codes in src/kernel/codes: `npm run docs:errors`.
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const HEAD = `# Error codes

Every error of Troupe is a \`TroupeError\` with a \`code\`; so is every issue of a turn and every failed tool call. Branch on the code, never on the message. \`TroupeErrorCode\` is the union of all codes on this page.

\`\`\`ts
import { TroupeError } from "troupe";

try {
  await session.turn("hello");
} catch (error) {
  if (error instanceof TroupeError && error.code === "mailbox_full") await backOff();
  else throw error;
}
\`\`\`

*Retry* says whether the same call may succeed when it is made again unchanged: \`error.retryable\`. *Sometimes* means that it depends; read the property. Codes that a plugin, a tool or a host makes up (\`deny("over_limit", …)\`, \`abortTurn\`, \`failTurn\`, \`completeTool\`) are its own and are not on this page.

This page is made from \`src/kernel/codes\` by \`npm run docs:errors\`. A test keeps it complete.
`;

const RETRY = { true: "yes", sometimes: "sometimes" };

/** The page for a table of codes by section. */
export function errorsPage(sections) {
  const parts = Object.entries(sections).map(([title, codes]) => {
    const rows = Object.entries(codes).map(
      ([code, { retryable = false, cause, cure }]) =>
        `| <a id="${code}"></a>\`${code}\` | ${RETRY[retryable] ?? ""} | ${cell(cause)} | ${cell(cure)} |`,
    );
    return `## ${title}\n\n| code | retry | cause | cure |\n|---|---|---|---|\n${rows.join("\n")}\n`;
  });
  return [HEAD, ...parts].join("\n");
}

const cell = (text) => text.replaceAll("|", "\\|");

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { ERROR_CODES } = await import("../dist/src/kernel/codes/index.js");
  await writeFile(new URL("../docs/errors.md", import.meta.url), errorsPage(ERROR_CODES));
}
