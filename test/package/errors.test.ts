import { expect, test } from "vitest";
// @ts-expect-error A script of the build, which has no declarations.
import { errorsPage } from "../../build/errors-page.mjs";
import { type CodeEntry, ERROR_CODES } from "../../src/kernel/codes/index.js";
import { textOf } from "../support/shown-by.js";
import { sourceCodes } from "../support/source-codes.js";

const entries = Object.values(ERROR_CODES).flatMap((table): [string, CodeEntry][] => Object.entries(table));
const table = new Map(entries);
const { open, factories, literals } = sourceCodes();

test("docs/errors.md is what npm run docs:errors makes of the table of codes", () => {
  expect(textOf("docs/errors.md")).toBe(errorsPage(ERROR_CODES));
});

test("every code that src gives an issue or a failed tool call stands in the table of codes", () => {
  expect(open.length).toBeGreaterThan(20);
  expect(open.filter(({ code }) => !table.has(code))).toEqual([]);
});

test("every code of the table is used in src, and stands in one section only", () => {
  const used = (code: string) =>
    literals.has(code) || [...literals].some((end) => /^_\w+_/.test(end) && code.endsWith(end));
  expect([...table.keys()].filter((code) => !used(code))).toEqual([]);
  expect(entries).toHaveLength(table.size);
});

test("every code is snake_case and has a cause and a cure in sentences", () => {
  const isSentence = (text: string) => /^[A-Z`].*\.$/.test(text);
  const isWhole = ([code, { cause, cure }]: [string, CodeEntry]) =>
    /^[a-z]+(_[a-z]+)*$/.test(code) && isSentence(cause) && isSentence(cure);
  expect(entries.filter((entry) => !isWhole(entry))).toEqual([]);
});

test("every code has one place in src that makes its errors, and so one way to say them", () => {
  expect(factories.length).toBeGreaterThan(100);
  const first = new Map(factories.map(({ code, place }) => [code, place]));
  expect(factories.filter(({ code, place }) => first.get(code) !== place)).toEqual([]);
});

test("a code is retryable in docs/errors.md as the one place says that makes its errors", () => {
  const told = factories.filter(({ code, retryable }) => {
    const documented = table.get(code)?.retryable ?? false;
    return documented !== "sometimes" && retryable !== "sometimes" && documented !== retryable;
  });
  expect(told).toEqual([]);
});
